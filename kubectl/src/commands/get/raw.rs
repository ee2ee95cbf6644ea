//! `--raw`: a path as it is.

use http::Method;

use crate::context::Context;
use crate::error::{Result, message};
use crate::transport::{JSON, Request};

pub(super) async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.args.is_empty() {
        return message("arguments may not be passed when --raw is specified");
    }
    if flags.bool("watch") || flags.bool("watch-only") || !flags.str("selector").is_empty() {
        return message(
            "--raw may not be specified with other flags that filter the server request or alter the output",
        );
    }
    if !flags.str("output").is_empty() {
        return message("--raw and --output are mutually exclusive");
    }
    raw_get(context, flags.str("raw")).await
}

/// Prints what the server sends for a path.
async fn raw_get(context: &Context, path: &str) -> Result<()> {
    if !path.starts_with('/') {
        return message(format!(
            "--raw must be a valid URL path: parse {}: invalid URI for request",
            api::field::go_quote(path)
        ));
    }
    let request = Request { is_long: true, accept: "application/json, */*".to_string(), ..Request::get(path) };
    let mut response = context.client().await?.send(&request).await?;
    while let Some(part) = response.next().await {
        context.write(&part?)?;
        context.flush()?;
    }
    Ok(())
}

/// Sends a file as it is, and prints the response.
pub(crate) async fn raw_send(context: &Context, method: Method, path: &str, body: Vec<u8>) -> Result<()> {
    let request = Request::new(method, path).body(JSON, body);
    let bytes = context.client().await?.bytes(&request).await?;
    context.write(&bytes)
}
