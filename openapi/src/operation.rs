//! Paths and operations, independent of v2 and v3.

use std::borrow::Cow;

use api::Str;

use crate::parameters::Parameter;

pub(crate) struct Path {
    /// `/api/v1/namespaces/{namespace}/pods`
    pub path: String,
    pub operations: Vec<Operation>,
}

#[derive(Default)]
pub(crate) struct Operation {
    /// The key in the path item, such as `get`.
    pub method: &'static str,
    pub id: String,
    pub description: Cow<'static, str>,
    pub tag: String,
    /// `x-kubernetes-action`; empty if there is none.
    pub action: &'static str,
    pub gvk: Option<Gvk>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Response media types; v2 also lists them as accepted for requests without a body.
    pub produces: &'static [&'static str],
    /// Status code and content.
    pub responses: Vec<(&'static str, Content)>,
}

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gvk(pub Str, pub Str, pub Str);

pub(crate) struct Body {
    /// The schema's name.
    pub schema: String,
    pub required: bool,
    pub media: &'static [&'static str],
}

#[derive(Clone)]
pub(crate) enum Content {
    /// An object of the named schema.
    Object(String),
    Text,
}

/// Media types of objects.
pub(crate) const OBJECT: &[&str] = &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
/// Media types of lists, which can also be watched.
pub(crate) const STREAM: &[&str] = &[
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];
/// Media types of custom resources, which have no protobuf encoding.
pub(crate) const CUSTOM: &[&str] = &["application/json", "application/yaml"];
pub(crate) const ANY: &[&str] = &["*/*"];
pub(crate) const JSON: &[&str] = &["application/json"];
pub(crate) const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
pub(crate) const PATCHES_OF_CUSTOM: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
/// Media types of logs: text, with errors as objects.
pub(crate) const LOG: &[&str] =
    &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "text/plain"];

pub(crate) fn status_text(code: &str) -> &'static str {
    match code {
        "200" => "OK",
        "201" => "Created",
        "202" => "Accepted",
        _ => "Unauthorized",
    }
}

impl Path {
    /// Parameters shared by all operations of this path, which are listed once.
    pub(crate) fn common_parameters(&self) -> Vec<&Parameter> {
        let Some((first, rest)) = self.operations.split_first() else { return Vec::new() };
        let everywhere = |p: &&Parameter| rest.iter().all(|operation| operation.parameters.contains(p));
        first.parameters.iter().filter(everywhere).collect()
    }
}
