//! Waiting for an object: a list, then a watch from its revision, and again if the watch ends.

use api::{Tree, json};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::Info;
use crate::transport::Request;

/// Watches an object until it shows something; calls `seen` with each of its states.
pub(crate) async fn follow<T>(
    context: &Context,
    info: &Info,
    mut seen: impl FnMut(&Tree) -> Result<Option<T>>,
) -> Result<T> {
    let client = context.client().await?;
    let selector = format!("metadata.name={}", info.name);
    let missing = || Error::Server {
        status: Box::new(api::status::Status::not_found(&info.resource.group, &info.resource.plural, &info.name)),
        context: String::new(),
    };
    loop {
        let request = Request::get(info.resource.path(&info.namespace)).query("fieldSelector", selector.clone());
        let list = client.tree(&request).await?;
        let object = list.list("items").first().ok_or_else(missing)?;
        if let Some(result) = seen(object)? {
            return Ok(result);
        }
        let request = Request { is_long: true, ..request }
            .query("watch", "true")
            .query("resourceVersion", list.str("metadata.resourceVersion"));
        let mut lines = client.send(&request).await?.lines();
        while let Some(line) = lines.next().await {
            let Ok(event) = json::decode(&line?) else { break };
            match event.str("type") {
                "ERROR" => break,
                "DELETED" => return Err(missing()),
                "BOOKMARK" => {}
                _ => {
                    if let Some(result) = seen(event.at("object"))? {
                        return Ok(result);
                    }
                }
            }
        }
    }
}

/// Watches an object until a condition holds.
pub(crate) async fn until(context: &Context, info: &Info, holds: impl Fn(&Tree) -> bool) -> Result<Tree> {
    follow(context, info, |object| Ok(holds(object).then(|| object.clone()))).await
}
