//! The versions of one object, oldest first.

use std::sync::Arc;

use api::status::Status;
use api::{Tree, tree};
use store::{Content, Entry, Version, VersionQuery, Versions};

use super::{item, namespace, past_status};
use crate::call::{Call, HttpResponse, json_response};
use crate::registry::cause::Cause;
use crate::registry::{Registry, conversion, initializers};
use crate::storage::resource::Resource;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// A copy of the object in its own annotation.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) async fn serve(registry: &Registry, resource: &Arc<Resource>, call: &Call) -> Result<HttpResponse, Status> {
    let name = &call.head.info.name;
    let key = resource.store_key(namespace(resource, call), name);
    let query = VersionQuery { key: key.clone(), limit: limit(call)?, ..VersionQuery::default() };
    let found = registry.storage.store.versions(query).await.map_err(past_status)?;
    let mut versions = Vec::with_capacity(found.versions.len());
    for version in &found.versions {
        let object = object(registry, resource, call, &key, version).await?;
        versions.push(describe(version, object));
    }
    if versions.iter().all(|version| !version.has("object")) {
        return Err(resource.not_found(name));
    }
    let is_secret = resource.kind.group().is_empty() && resource.kind.plural() == "secrets";
    if is_secret && !call.head.query.flag("values") {
        Masks::default().apply(&mut versions);
    }
    Ok(json_response(200, &list(&found, versions)))
}

fn limit(call: &Call) -> Result<usize, Status> {
    match call.head.query.get("limit") {
        "" => Ok(DEFAULT_LIMIT),
        text => match text.parse() {
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
            _ => Err(Status::bad_request(format!("limit: {text:?} is not a number from 1 to {MAX_LIMIT}"))),
        },
    }
}

fn list(found: &Versions, versions: Vec<Tree>) -> Tree {
    tree! {
        "kind" => "ObjectHistory", "apiVersion" => "tiphys/v1", "begins" => found.floor as i64,
        "limited" => found.is_limited, "versions" => Tree::List(versions),
    }
}

/// The object of a version, in the version of the request, without what repeats it.
async fn object(
    registry: &Registry,
    resource: &Resource,
    call: &Call,
    key: &str,
    version: &Version,
) -> Result<Option<Tree>, Status> {
    let Content::Value(value) = &version.content else { return Ok(None) };
    let entry = Entry { key: key.into(), value: value.clone(), revision: version.revision, expires: 0 };
    let hidden = initializers::hides(&call.head.query);
    let item = item(registry, resource, &entry).filter(|item| !hidden || item.is_initialized(resource.stored_row()));
    let Some(item) = item else { return Ok(None) };
    let mut object = conversion::read(registry, resource, &item).await?;
    let metadata = object.child("metadata");
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations") {
        annotations.remove(LAST_APPLIED);
    }
    Ok(Some(object))
}

/// A version with its cause; what is not known is left out.
fn describe(version: &Version, object: Option<Tree>) -> Tree {
    let mut tree = tree! { "revision" => version.revision as i64 };
    if !version.time.is_zero() {
        let (seconds, nanos) = (version.time.as_secs() as i64, version.time.subsec_nanos());
        tree.set("time", api::time::format_micros(api::time::Timestamp { seconds, nanos }));
    }
    add_cause(&mut tree, &Cause::decode(&version.cause));
    match (&version.content, object) {
        (_, Some(object)) => tree.set("object", object),
        (Content::Deleted, None) => tree.set("deleted", true),
        (Content::Unreadable(why), None) => tree.set("unreadable", why.as_str()),
        (Content::Value(_), None) => tree.set("unreadable", "the stored value is not an object that can be shown"),
    }
    tree
}

fn add_cause(tree: &mut Tree, cause: &Cause<'_>) {
    let texts = [
        ("user", &cause.user),
        ("userAgent", &cause.user_agent),
        ("auditID", &cause.request),
        ("verb", &cause.verb),
        ("subresource", &cause.subresource),
        ("component", &cause.component),
        ("traceparent", &cause.traceparent),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        tree.set(name, &**text);
    }
    if let Some(of) = &cause.acted_on {
        let of = tree! {
            "resource" => &*of.resource, "key" => &*of.key, "revision" => of.revision as i64,
        };
        tree.set("actedOn", of);
    }
}

/// Replaces the values of secrets by numbers: equal values of a key have the same number.
#[derive(Default)]
struct Masks(Vec<(String, String)>);

impl Masks {
    fn apply(&mut self, versions: &mut [Tree]) {
        for version in versions {
            for field in ["data", "stringData"] {
                let Some(Tree::Map(data)) = version.get_mut("object").and_then(|object| object.get_mut(field)) else {
                    continue;
                };
                for (key, value) in data.iter_mut() {
                    *value = Tree::from(self.mask(key, value.as_str().unwrap_or_default()));
                }
            }
        }
    }

    fn mask(&mut self, key: &str, value: &str) -> String {
        let of_key = || self.0.iter().filter(|(known, _)| known == key);
        let number = match of_key().position(|(_, known)| known == value) {
            Some(known) => known + 1,
            None => {
                let next = of_key().count() + 1;
                self.0.push((key.to_string(), value.to_string()));
                next
            }
        };
        format!("*** (value {number})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(password: &str) -> Tree {
        tree! { "object" => tree! { "data" => tree! { "password" => password, "user" => "YQ==" } } }
    }

    #[test]
    fn values_of_secrets_become_numbers() {
        let mut versions = [secret("b25l"), secret("dHdv"), tree! { "deleted" => true }, secret("b25l")];
        Masks::default().apply(&mut versions);
        let shown = versions.each_ref().map(|version| version.str("object.data.password"));
        assert_eq!(shown, ["*** (value 1)", "*** (value 2)", "", "*** (value 1)"]);
        assert_eq!(versions[3].str("object.data.user"), "*** (value 1)");
    }
}
