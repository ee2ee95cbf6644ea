//! OpenAPI v2 (Swagger): one document for everything.

mod parts;

use std::collections::BTreeMap;

use api::{Map, Tree, list, tree};

use crate::document;
use crate::operation::{Body, Content, Operation, Path, status_text};
use crate::parameters::{Location, Parameter};
use crate::schemas::REFERENCE;
use crate::{Api, Encoding, etag};

pub use parts::{Part, PartIndex, Skeleton, join, restrict, skeleton};

/// Media types that request the protobuf form, the older name first. Some clients request nothing else.
pub const PROTOBUF_NAMES: &[&str] = &["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF];

/// The Content-Type of the protobuf form for both names: the `@` of the older one is not allowed in a header, and
/// Go's parser rejects it.
pub const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const DEFINITIONS: &str = "#/definitions/";

/// The response of GET /openapi/v2.
pub fn document(api: &Api<'_>, encoding: Encoding) -> Vec<u8> {
    let extras = api.extras.iter().map(|extra| Part::of_extra(api, extra, encoding));
    let parts: Vec<Part> = std::iter::once(Part::built_in(api, encoding)).chain(extras).collect();
    join(api.version, &parts, encoding)
}

/// Parameters shared by many operations are defined once. Parameters that clients use for feature detection stay
/// inline.
#[derive(Default)]
struct SharedParameters {
    parameters: BTreeMap<String, Tree>,
}

impl SharedParameters {
    fn parameter(&mut self, parameter: &Parameter) -> Tree {
        let by_kind = parameter.place == Location::Path && parameter.name == "name";
        if by_kind || matches!(parameter.name, "dryRun" | "fieldValidation") {
            return parameter_of(parameter);
        }
        let hash = etag(parameter.description.as_bytes());
        let key = format!("{}-{}", parameter.name, &hash[..8]);
        let reference = format!("#/parameters/{key}");
        self.parameters.entry(key).or_insert_with(|| parameter_of(parameter));
        tree! { "$ref" => reference }
    }
}

fn parameter_of(parameter: &Parameter) -> Tree {
    let mut out = document::parameter_head(parameter);
    out.set("type", parameter.ty);
    out.set("uniqueItems", true);
    out
}

fn path_item(path: &Path, shared: &mut SharedParameters) -> Tree {
    let common = path.common_parameters();
    let mut out = Map::new();
    for operation in &path.operations {
        out.insert(operation.method, operation_of(operation, &common, shared));
    }
    if !common.is_empty() {
        out.insert("parameters", common.iter().map(|parameter| shared.parameter(parameter)).collect::<Vec<_>>());
    }
    Tree::Map(out)
}

fn operation_of(operation: &Operation, common: &[&Parameter], shared: &mut SharedParameters) -> Tree {
    let mut out = document::operation_head(operation);
    let own = operation.parameters.iter().filter(|parameter| !common.contains(parameter));
    let mut parameters: Vec<Tree> = operation.body.iter().map(body_parameter).collect();
    parameters.extend(own.map(|parameter| shared.parameter(parameter)));
    if !parameters.is_empty() {
        out.set("parameters", parameters);
    }
    let consumes = operation.body.as_ref().map_or(operation.produces, |body| body.media);
    out.set("consumes", strings(consumes));
    out.set("produces", strings(operation.produces));
    out.set("responses", responses(operation));
    out.set("schemes", list!["https"]);
    out
}

fn body_parameter(body: &Body) -> Tree {
    let mut out = tree! { "in" => "body", "name" => "body", "schema" => reference(&body.schema) };
    if body.required {
        out.set("required", true);
    }
    out
}

fn responses(operation: &Operation) -> Tree {
    let mut out = tree! { "401" => tree! { "description" => status_text("401") } };
    for (code, content) in &operation.responses {
        let schema = match content {
            Content::Object(name) => reference(name),
            Content::Text => tree! { "type" => "string" },
        };
        out.set(code, tree! { "description" => status_text(code), "schema" => schema });
    }
    out
}

fn strings(items: &[&str]) -> Vec<Tree> {
    items.iter().map(|item| Tree::from(*item)).collect()
}

fn reference(name: &str) -> Tree {
    tree! { "$ref" => format!("{DEFINITIONS}{name}") }
}

/// A v3 schema converted to v2: bare references, no alternatives, and, as in upstream, no defaults.
fn convert_schema(schema: Tree) -> Tree {
    let Tree::Map(map) = schema else { return schema };
    let mut out = Map::new();
    let flag = |key: &str| map.get(key).and_then(Tree::as_bool) == Some(true);
    // Constraints that v2 cannot express are omitted.
    let is_open = flag("x-kubernetes-preserve-unknown-fields") || flag("nullable");
    let has_type = map.contains("type");
    for (key, value) in map.into_entries() {
        match key.as_str() {
            "type" | "items" | "properties" | "additionalProperties" | "required" | "enum" if is_open => {}
            "oneOf" if has_type => {}
            "default" | "anyOf" | "not" | "nullable" => {}
            // Quantities and IntOrStrings become strings.
            "oneOf" => drop(out.insert("type", "string")),
            "$ref" => drop(out.insert("$ref", lowered_reference(&value))),
            "allOf" => join_references(value, &mut out),
            "properties" => drop(out.insert(key, lowered_values(value))),
            "items" | "additionalProperties" => drop(out.insert(key, convert_schema(value))),
            _ => drop(out.insert(key, value)),
        }
    }
    Tree::Map(out)
}

fn lowered_values(properties: Tree) -> Tree {
    let Tree::Map(map) = properties else { return properties };
    let entries = map.into_entries().into_iter().map(|(name, schema)| (name, convert_schema(schema))).collect();
    Tree::Map(Map::from_entries(entries, |_| ()))
}

fn lowered_reference(value: &Tree) -> Tree {
    let text = value.as_str().unwrap_or_default();
    Tree::from(text.replacen(REFERENCE, DEFINITIONS, 1))
}

/// An `allOf` with one reference only exists for v3; others cannot be expressed in v2.
fn join_references(value: Tree, out: &mut Map) {
    if let Some([only]) = value.as_list()
        && let Some(reference) = only.get("$ref")
    {
        out.insert("$ref", lowered_reference(reference));
    }
}
