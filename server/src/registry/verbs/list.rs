//! GET of a collection: selectors, pages at one revision, and the rules for resourceVersion.

use std::sync::Arc;

use crate::storage::kind::Kind;
use api::field::{Errors, Path};
use api::selector::{FieldSelector, Selector};
use api::status::Status;
use api::{Tree, base64, json, tree};

use crate::call::{HttpResponse, build_response};
use crate::registry::Registry;
use crate::registry::conversion;
use crate::registry::{respond, shape};
use crate::request::body::{Body, ListBody};
use crate::request::head::RequestHead;
use crate::request::info::Query;
use crate::request::negotiate::{Accepted, Media};
use crate::storage::cache::{Cache, Item, Selection, Snapshot};
use crate::storage::resource::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    Unset,
    Exact,
    NotOlderThan,
}

/// ListOptions, checked.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub selection: Selection,
    pub limit: usize,
    pub continue_token: String,
    pub resource_version: String,
    pub version_match: ResourceVersionMatch,
    pub timeout_seconds: Option<u64>,
    pub send_initial_events: Option<bool>,
    pub bookmarks: bool,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query, kind: &Kind, watch: bool) -> Result<ListOptions, Status> {
        let selection = selection(query, kind)?;
        let limit = integer(query, "limit")?.unwrap_or(0);
        let timeout = integer(query, "timeoutSeconds")?;
        let version_match = match query.get("resourceVersionMatch") {
            "Exact" => ResourceVersionMatch::Exact,
            "NotOlderThan" => ResourceVersionMatch::NotOlderThan,
            _ => ResourceVersionMatch::Unset,
        };
        let send_initial_events = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
        check(query, watch, send_initial_events)?;
        Ok(ListOptions {
            selection,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.get("continue").to_string(),
            resource_version: query.get("resourceVersion").to_string(),
            version_match,
            timeout_seconds: timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0),
            send_initial_events,
            bookmarks: query.flag("allowWatchBookmarks"),
        })
    }
}

fn integer(query: &Query, key: &str) -> Result<Option<i64>, Status> {
    match query.get(key) {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let why = if text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
                "value out of range"
            } else {
                "invalid syntax"
            };
            Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        }),
    }
}

/// Upstream's rules for combinations of options.
fn check(query: &Query, watch: bool, initial: Option<bool>) -> Result<(), Status> {
    let mut errors = Errors::new();
    let path = Path::root("resourceVersionMatch");
    let version_match = query.get("resourceVersionMatch");
    let continued = !query.get("continue").is_empty();
    if watch {
        check_watch(version_match, initial, continued, &path, &mut errors);
    } else {
        check_list(query, version_match, initial, continued, &path, &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

fn check_watch(version_match: &str, initial: Option<bool>, continued: bool, path: &Path<'_>, errors: &mut Errors) {
    if continued {
        return errors.forbidden(path, "resourceVersionMatch is forbidden when continue is provided");
    }
    match (initial, version_match) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        (None, _) => {
            errors.forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        }
        (Some(_), "") => {
            errors.forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        }
        (Some(_), other) => {
            errors.forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            errors.not_supported(path, other, &["NotOlderThan"]);
        }
    }
}

fn check_list(
    query: &Query,
    version_match: &str,
    initial: Option<bool>,
    continued: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if initial.is_some() {
        errors.forbidden(&Path::root("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
    if version_match.is_empty() {
        return;
    }
    let version = query.get("resourceVersion");
    if version.is_empty() {
        errors.forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if continued {
        errors.forbidden(path, "resourceVersionMatch is forbidden when continue is provided");
    }
    match version_match {
        "Exact" if version == "0" => {
            errors.forbidden(path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        "Exact" | "NotOlderThan" => {}
        other => errors.not_supported(path, other, &["Exact", "NotOlderThan", ""]),
    }
}

/// The selectors of a query, with the field names of the stored kind.
pub(crate) fn selection(query: &Query, kind: &Kind) -> Result<Selection, Status> {
    let bad = |error: api::selector::Error| Status::bad_request(error.to_string());
    let labels = match query.get("labelSelector") {
        "" => None,
        text => Some(Selector::parse(text).map_err(bad)?).filter(|selector| !selector.is_everything()),
    };
    let fields = match query.get("fieldSelector") {
        "" => None,
        text => {
            let selector = FieldSelector::parse(text).map_err(bad)?;
            check_fields(&selector, kind)?;
            let stored = selector.rename(|name| stored_field(kind, name));
            Some(stored).filter(|selector| !selector.is_everything())
        }
    };
    let initialized = crate::registry::initializers::hides(query);
    Ok(Selection { labels: labels.map(Arc::new), fields: fields.map(Arc::new), initialized })
}

fn check_fields(selector: &FieldSelector, kind: &Kind) -> Result<(), Status> {
    for term in selector.terms() {
        let name = term.field.as_str();
        let common =
            name == "metadata.name" || (name == "metadata.namespace" && (kind.namespaced || !kind.has_selectable()));
        let own = kind.is_selectable(name);
        if !common && !own && alias(kind, name).is_none() {
            return Err(unknown_field(kind, name));
        }
    }
    Ok(())
}

fn unknown_field(kind: &Kind, name: &str) -> Status {
    if !kind.has_selectable() {
        return Status::bad_request(format!(
            "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ));
    }
    Status::bad_request(format!("field label not supported: {name}"))
}

/// Old names of fields that are still accepted.
fn alias(kind: &Kind, name: &str) -> Option<&'static str> {
    match (kind.kind(), name) {
        ("Pod", "spec.host") => Some("spec.nodeName"),
        _ => None,
    }
}

/// The field's name in the stored kind.
fn stored_field(kind: &Kind, name: &str) -> String {
    if let Some(name) = alias(kind, name) {
        return name.to_string();
    }
    match (kind.group(), name) {
        ("events.k8s.io", "reportingController") => "reportingComponent".to_string(),
        ("events.k8s.io", name) => name.replace("regarding.", "involvedObject."),
        _ => name.to_string(),
    }
}

/// The content of a continue token: the start key and the revision (none: the newest).
struct ContinueToken {
    start: String,
    revision: Option<u64>,
}

fn encode_token(start: &str, revision: Option<u64>) -> String {
    let revision = revision.map_or(-1, |revision| revision as i64);
    let tree = tree! { "v" => "meta.k8s.io/v1", "rv" => revision, "start" => start };
    base64::encode_url(&json::encode(&tree, None))
}

fn decode_token(text: &str) -> Result<ContinueToken, Status> {
    let bad = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = base64::decode_url(text).map_err(|error| bad(&error.to_string()))?;
    let tree = json::decode(&bytes).map_err(|error| bad(&error.to_string()))?;
    match (tree.str("v"), tree.int("rv").unwrap_or(0), tree.str("start")) {
        ("meta.k8s.io/v1", 0, _) => Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        ("meta.k8s.io/v1", _, "") => Err(bad("encoded start key empty (version meta.k8s.io/v1)")),
        ("meta.k8s.io/v1", revision, start) => {
            Ok(ContinueToken { start: start.to_string(), revision: u64::try_from(revision).ok() })
        }
        (version, _, _) => Err(bad(&format!("server does not recognize this encoded version {version:?}"))),
    }
}

/// The objects of one page.
pub(crate) struct ListPage {
    pub items: Vec<Arc<Item>>,
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
}

impl ListPage {
    pub(crate) fn metadata(&self) -> Tree {
        let mut metadata = tree! { "resourceVersion" => self.revision.to_string() };
        if let Some(token) = &self.continue_token {
            metadata.set("continue", token);
        }
        if let Some(remaining) = self.remaining {
            metadata.set("remainingItemCount", remaining as i64);
        }
        metadata
    }
}

pub(crate) async fn list(
    registry: &Registry,
    resource: &Arc<Resource>,
    head: &RequestHead,
) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(head)?;
    let shaping = respond::shaping(head, accepted)?;
    let options = ListOptions::parse(&head.query, &resource.kind, false)?;
    let listed = read(registry, resource, &head.info.namespace, &head.info.name, &options).await?;
    if accepted == Accepted::JSON && resource.serves_stored_bytes() {
        let body = ListBody::new(list_start(resource, &listed), listed.items);
        return Ok(build_response(200, Media::Json.name(), Body::List(body)));
    }
    if accepted == Accepted::JSON && serves_custom_bytes(resource, &listed.items) {
        return Ok(build_response(200, Media::Json.name(), Body::List(custom_list(resource, listed))));
    }
    let metadata = listed.metadata();
    let objects = conversion::read_all(registry, resource, &listed.items).await?;
    let tree = shape::list_of(&resource.kind, metadata, objects, shaping)?;
    Ok(respond::encoded(200, &tree, accepted))
}

/// Whether all objects of a custom resource can be served as stored.
fn serves_custom_bytes(resource: &Resource, items: &[Arc<Item>]) -> bool {
    resource.kind.definition().is_some()
        && !conversion::has_webhook(resource)
        && items.iter().all(|item| resource.serves_bytes_of(item))
}

/// A list of custom resources from their stored bytes: `shape::list_of` returns the same keys.
fn custom_list(resource: &Resource, listed: ListPage) -> ListBody {
    let list = shape::list_without_items(&resource.kind, listed.metadata());
    let text = json::encode(&list, None);
    let empty = b"\"items\":[";
    let at = memchr::memmem::find(&text, empty).map_or(text.len(), |at| at + empty.len());
    let (head, tail) = text.split_at(at);
    ListBody::from_items(head.to_vec(), listed.items, [tail, b"\n"].concat())
}

/// A list up to its first item.
fn list_start(resource: &Resource, listed: &ListPage) -> Vec<u8> {
    let mut start = Vec::with_capacity(256);
    start.extend_from_slice(b"{\"kind\":\"");
    start.extend_from_slice(resource.kind.kind().as_bytes());
    start.extend_from_slice(b"List\",\"apiVersion\":\"");
    start.extend_from_slice(resource.api_version().as_bytes());
    start.extend_from_slice(b"\",\"metadata\":");
    json::encode_into(&mut start, &listed.metadata(), None);
    start.extend_from_slice(b",\"items\":[");
    start
}

/// Reads a page. `name` limits it to one object, for a watch or deletecollection of a name.
pub(crate) async fn read(
    registry: &Registry,
    resource: &Resource,
    namespace: &str,
    name: &str,
    options: &ListOptions,
) -> Result<ListPage, Status> {
    let cache = resource.cache()?;
    // Version 0 accepts any cached state, without pages.
    let any = options.resource_version == "0";
    if !options.continue_token.is_empty() {
        let token = decode_token(&options.continue_token)?;
        if !options.resource_version.is_empty() && !any {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let snapshot = match token.revision {
            Some(revision) => cache.snapshot_at(revision).ok_or_else(|| expired_page(&token.start))?,
            None => newest(registry, cache).await?,
        };
        let limit = if any { 0 } else { options.limit };
        return Ok(page(cache, resource, namespace, name, &options.selection, snapshot, limit, Some(&token.start)));
    }
    registry.storage.wait_for_list_version(&options.resource_version).await?;
    let exact = options.version_match == ResourceVersionMatch::Exact
        || (options.version_match == ResourceVersionMatch::Unset
            && options.limit > 0
            && !options.resource_version.is_empty()
            && !any);
    let snapshot = if exact {
        let revision = options.resource_version.parse().unwrap_or(0);
        cache
            .snapshot_at(revision)
            .ok_or_else(|| Status::gone("The resourceVersion for the provided list is too old."))?
    } else if options.resource_version.is_empty() {
        newest(registry, cache).await?
    } else {
        cache.snapshot()
    };
    let limit = if any { 0 } else { options.limit };
    Ok(page(cache, resource, namespace, name, &options.selection, snapshot, limit, None))
}

async fn newest(registry: &Registry, cache: &Cache) -> Result<Snapshot, Status> {
    registry.storage.catch_up().await?;
    Ok(cache.snapshot())
}

fn expired_page(start: &str) -> Status {
    let mut status = Status::gone(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(encode_token(start, None));
    status
}

#[allow(clippy::too_many_arguments)]
fn page(
    cache: &Cache,
    resource: &Resource,
    namespace: &str,
    name: &str,
    selection: &Selection,
    snapshot: Snapshot,
    limit: usize,
    start: Option<&str>,
) -> ListPage {
    let prefix =
        if resource.kind.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() };
    let from: Arc<str> = Arc::from(format!("{prefix}{}", start.unwrap_or("")));
    let mut items = Vec::new();
    let mut continue_token = None;
    let mut remaining = None;
    let mut range = snapshot.map.range(from..).map(|(_, item)| item).take_while(|item| item.key.starts_with(&prefix));
    for item in range.by_ref() {
        if (!name.is_empty() && item.name() != name) || !selection.matches(item, resource) {
            continue;
        }
        if limit > 0 && items.len() == limit {
            continue_token = Some(&item.key[prefix.len()..]);
            // The remaining objects are counted only without a selector.
            remaining = selection.everything().then(|| 1 + range.count() as u64);
            break;
        }
        items.push(item.clone());
    }
    let token = continue_token.map(|start| encode_token(start, Some(snapshot.revision)));
    if token.is_some() {
        cache.hold(&snapshot);
    }
    ListPage { items, revision: snapshot.revision, continue_token: token, remaining }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_bad_ones_are_named() {
        let token = decode_token(&encode_token("c2", Some(7))).expect("a good token");
        assert_eq!((token.start.as_str(), token.revision), ("c2", Some(7)));
        assert_eq!(decode_token(&encode_token("c2", None)).expect("a good token").revision, None);
        let cases = [
            ("bogus", "invalid continue token: continue key is not valid: illegal base64 data at input byte 4"),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJ4In0",
                "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(decode_token(text).err().map(|status| status.message).as_deref(), Some(message));
        }
    }
}
