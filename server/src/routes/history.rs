//! The past of objects: `/tiphys/v1/history/PATH`, where PATH is that of an object or a collection in the API. The
//! object alone has its versions, each with who wrote it, when and why; with `at=REVISION` or `at=TIME` the object or
//! the collection is served as it was then. A client that may get or list the resource now may read its past. Discovery
//! does not show these paths.

mod versions;

use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use http::Method;
use store::{Entry, Range};

use crate::call::{Call, HttpResponse};
use crate::registry::verbs::list;
use crate::registry::{Registry, conversion, initializers, respond, shape};
use crate::request::info::HISTORY;
use crate::routes::Routes;
use crate::storage::cache::Item;
use crate::storage::resource::Resource;
use crate::storage::store_status;

/// A collection with more objects has to be read in parts.
const MAX_OBJECTS: usize = 50_000;

/// Whether a path is one of the past.
pub(crate) fn serves(path: &str) -> bool {
    path.starts_with(HISTORY)
}

pub(crate) async fn route(routes: &Routes, call: &mut Call) -> Result<HttpResponse, Status> {
    let (registry, info) = (&routes.registry, &call.head.info);
    let resource = registry.storage.resources.find(&info.group, &info.version, &info.resource);
    let resource = resource.ok_or_else(Status::no_resource)?;
    // What authorizes as another verb is not served as one of these.
    if call.head.method != Method::GET || !matches!(info.verb, "get" | "list") {
        return Err(Status::method_not_allowed());
    }
    let is_placed = resource.kind.namespaced || info.namespace.is_empty() || info.resource == "namespaces";
    if resource.kind.storage().is_empty() || !info.subresource.is_empty() || !is_placed {
        return Err(Status::no_resource());
    }
    call.head.untyped = resource.kind.definition().is_some();
    match (call.head.query.get("at"), call.head.info.name.is_empty()) {
        ("", false) => versions::serve(registry, &resource, call).await,
        ("", true) => Err(Status::bad_request("at: the revision or the time of the objects is required")),
        (at, false) => object_at(registry, &resource, call, at).await,
        (at, true) => list_at(registry, &resource, call, at).await,
    }
}

async fn object_at(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &Call,
    at: &str,
) -> Result<HttpResponse, Status> {
    let name = &call.head.info.name;
    let key = resource.store_key(namespace(resource, call), name);
    let range = Range { end: format!("{key}\0"), start: key, revision: revision(registry, at).await?, limit: 1 };
    let page = registry.storage.store.past_range(range).await.map_err(past_status)?;
    let hidden = initializers::hides(&call.head.query);
    let item = page.entries.first().and_then(|entry| item(registry, resource, entry));
    let item = item.filter(|item| !hidden || item.is_initialized(resource.stored_row()));
    let item = item.ok_or_else(|| resource.not_found(name))?;
    let object = conversion::read(registry, resource, &item).await?;
    respond::tree(&call.head, resource, 200, object)
}

async fn list_at(registry: &Registry, resource: &Arc<Resource>, call: &Call, at: &str) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(&call.head)?;
    let shaping = respond::shaping(&call.head, accepted)?;
    let selection = list::selection(&call.head.query, &resource.kind)?;
    let revision = revision(registry, at).await?;
    let start = match namespace(resource, call) {
        "" => resource.store_prefix().to_string(),
        namespace => format!("{}{namespace}/", resource.store_prefix()),
    };
    // The first key after all that begin with the prefix, which ends with a slash.
    let end = format!("{}0", &start[..start.len() - 1]);
    let page = registry.storage.store.past_range(Range { start, end, revision, limit: MAX_OBJECTS }).await;
    let page = page.map_err(past_status)?;
    if page.remaining > 0 {
        let more = format!("there were more than {MAX_OBJECTS} objects: name a namespace");
        return Err(Status::bad_request(more));
    }
    let items = page.entries.iter().filter_map(|entry| item(registry, resource, entry));
    let items: Vec<_> = items.filter(|item| selection.matches(item, resource)).collect();
    let metadata = api::tree! { "resourceVersion" => page.revision.to_string() };
    let objects = conversion::read_all(registry, resource, &items).await?;
    let list = shape::list_of(&resource.kind, metadata, objects, shaping)?;
    Ok(respond::encoded(200, &list, accepted))
}

/// Empty for cluster-scoped objects: the path of a namespace names it as its own namespace.
fn namespace<'a>(resource: &Resource, call: &'a Call) -> &'a str {
    if resource.kind.namespaced { &call.head.info.namespace } else { "" }
}

fn item(registry: &Registry, resource: &Resource, entry: &Entry) -> Option<Arc<Item>> {
    let key = entry.key.strip_prefix(resource.store_prefix())?;
    Some(Arc::new(Item::new(key, entry.revision, registry.storage.adopt(entry)?)))
}

/// A point in time: a revision, or the newest revision until a time.
async fn revision(registry: &Registry, at: &str) -> Result<u64, Status> {
    if let Ok(revision) = at.parse() {
        return Ok(revision);
    }
    let invalid =
        || Status::bad_request(format!("at: {at:?} is neither a revision nor a time such as 2026-01-31T12:00:00Z"));
    let time = api::time::parse(at).map_err(|_| invalid())?;
    // The whole second: writes have milliseconds.
    let end = Duration::new(u64::try_from(time.seconds).map_err(|_| invalid())?, 999_999_999);
    registry.storage.store.revision_at(end).await.map_err(past_status)
}

/// The status for a past that cannot be read.
fn past_status(error: store::Error) -> Status {
    match error {
        store::Error::Compacted { asked: 0, oldest } => {
            Status::gone(format!("that time is before the history of this server, which begins at revision {oldest}"))
        }
        store::Error::Compacted { asked, oldest } => Status::gone(format!(
            "revision {asked} is not kept any more: the history of this server begins at revision {oldest}; \
             --history-retention says how much is kept"
        )),
        store::Error::Future { asked, newest } => {
            Status::bad_request(format!("revision {asked} is in the future: the newest is {newest}"))
        }
        store::Error::NoHistory => Status::new(
            501,
            "NotImplemented",
            "this server keeps no history: its store is in memory, or --history-retention is 0",
        ),
        other => store_status(other),
    }
}
