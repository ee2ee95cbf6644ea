//! The AdmissionRequest of a request, for webhooks and expressions.

use api::{Tree, tree};
use kinds::User;

use super::matching::operation_name;
use super::{Attributes, Operation};
use crate::storage::resource::Resource;

/// The request without its objects, for a webhook or policy that matches another version of the resource.
pub(crate) fn describe_request(attributes: &Attributes<'_>, other: Option<&Resource>) -> Tree {
    let own = attributes.resource;
    let requested = other.unwrap_or(own);
    let mut request = tree! {
        "kind" => kind(requested, attributes.subresource),
        "resource" => resource(requested),
        "requestKind" => kind(own, attributes.subresource),
        "requestResource" => resource(own),
        "operation" => operation_name(attributes.operation),
        "userInfo" => user(attributes.user),
        "dryRun" => attributes.dry_run,
        "options" => options(attributes),
    };
    let namespace = if attributes.is_kind("", "Namespace") { attributes.name } else { attributes.namespace };
    for (key, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", namespace),
    ] {
        if !text.is_empty() {
            request.set(key, text);
        }
    }
    request
}

fn kind(resource: &Resource, subresource: &str) -> Tree {
    let own = (resource.kind.group(), resource.kind.version(), resource.kind.kind());
    let sub = resource.kind.subresource(subresource).and_then(|sub| sub.gvk);
    let (group, version, kind) = sub.unwrap_or(own);
    tree! { "group" => group, "version" => version, "kind" => kind }
}

fn resource(resource: &Resource) -> Tree {
    let kind = &resource.kind;
    tree! { "group" => kind.group(), "version" => kind.version(), "resource" => kind.plural() }
}

fn user(user: &User) -> Tree {
    let mut info = tree! { "username" => &user.name };
    if !user.uid.is_empty() {
        info.set("uid", &user.uid);
    }
    if !user.groups.is_empty() {
        info.set("groups", Tree::List(user.groups.iter().map(|group| Tree::from(group.as_str())).collect()));
    }
    if !user.extra.is_empty() {
        info.set("extra", Tree::Map(user.extra.clone()));
    }
    info
}

/// The options of the request in the kind of its operation.
fn options(attributes: &Attributes<'_>) -> Tree {
    let kind = match attributes.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Tree::Null,
    };
    let mut options = match attributes.delete_options {
        Some(options) => options.to_tree(),
        None => tree! {},
    };
    options.set("kind", kind);
    options.set("apiVersion", "meta.k8s.io/v1");
    if attributes.dry_run {
        options.set("dryRun", Tree::List(vec![Tree::from("All")]));
    }
    let query =
        attributes.origin.filter(|_| attributes.operation != Operation::Delete).map(|origin| &origin.head.query);
    for key in ["fieldManager", "fieldValidation"] {
        if let Some(value) = query.map(|query| query.get(key)).filter(|value| !value.is_empty()) {
            options.set(key, value);
        }
    }
    options
}
