//! Shared by both versions: the paths of a document, and the schemas they need.

use std::collections::{BTreeMap, BTreeSet};

use api::{Tree, list, tree};

use crate::names::prefix;
use crate::nonresource;
use crate::operation::{Content, Operation, Path};
use crate::parameters::{Location, Parameter};
use crate::paths::paths_of;
use crate::schemas::gvk;
use crate::{Api, Resource};

/// The source of a document's paths.
pub(crate) enum Source {
    Fixed(&'static str),
    Group(String),
    GroupVersion(String, String),
}

/// Every document of the v3 index by name: `api/v1`, `apis/apps`, `version`.
pub(crate) fn sources(api: &Api<'_>) -> BTreeMap<String, Source> {
    let mut out: BTreeMap<_, _> =
        nonresource::FIXED.iter().map(|name| (name.to_string(), Source::Fixed(name))).collect();
    for (group, version) in api.group_versions() {
        if !group.is_empty() {
            out.insert(format!("apis/{group}"), Source::Group(group.clone()));
        }
        out.insert(prefix(&group, &version), Source::GroupVersion(group, version));
    }
    out
}

/// A source's paths, sorted.
pub(crate) fn paths(api: &Api<'_>, source: &Source) -> Vec<Path> {
    let mut out = match source {
        Source::Fixed(name) => nonresource::fixed(name).into_iter().collect(),
        Source::Group(group) => vec![nonresource::group(group)],
        Source::GroupVersion(group, version) => {
            let resources = api.resources();
            let own = |r: &&Resource| r.group == *group && r.version == *version;
            let mut paths: Vec<Path> = resources.iter().filter(own).flat_map(paths_of).collect();
            // Upstream documents the discovery of built-in groups only.
            if api.kinds.iter().any(|kind| kind.group == group && kind.version == version) {
                paths.push(nonresource::group_version(group, version));
            }
            paths
        }
    };
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

/// The schemas that these paths refer to.
pub(crate) fn roots(paths: &[Path]) -> BTreeSet<String> {
    paths.iter().flat_map(|path| &path.operations).flat_map(schemas_of).collect()
}

fn schemas_of(operation: &Operation) -> Vec<String> {
    let body = operation.body.iter().map(|body| body.schema.clone());
    let answers = operation.responses.iter().filter_map(|(_, content)| match content {
        Content::Object(name) => Some(name.clone()),
        Content::Text => None,
    });
    body.chain(answers).collect()
}

pub(crate) fn info(version: &str) -> Tree {
    tree! { "title" => "Kubernetes", "version" => version }
}

/// The authentication scheme.
pub(crate) fn security_scheme() -> Tree {
    tree! {
        "BearerToken" => tree! {
            "description" => "Bearer Token authentication",
            "in" => "header",
            "name" => "authorization",
            "type" => "apiKey",
        }
    }
}

pub(crate) fn security() -> Tree {
    list![tree! { "BearerToken" => list![] }]
}

/// The part of an operation that both versions share.
pub(crate) fn operation_head(operation: &Operation) -> Tree {
    let mut out = tree! {
        "description" => &*operation.description,
        "operationId" => &operation.id,
        "tags" => list![&operation.tag],
    };
    if !operation.action.is_empty() {
        out.set("x-kubernetes-action", operation.action);
    }
    if let Some(kind) = &operation.gvk {
        out.set("x-kubernetes-group-version-kind", gvk(&kind.0, &kind.1, &kind.2));
    }
    out
}

/// The part of a parameter that both versions share, without its type.
pub(crate) fn parameter_head(parameter: &Parameter) -> Tree {
    let mut out = tree! {
        "description" => &*parameter.description,
        "in" => parameter.place.name(),
        "name" => parameter.name,
    };
    if parameter.place == Location::Path {
        out.set("required", true);
    }
    out
}
