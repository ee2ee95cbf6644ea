//! A version of a CustomResourceDefinition as documents describe it.

use api::{Map, Str, Tree, list, tree};
use kinds::{Subresource, Verb};

use crate::schemas::{GVK, gvk, reference};
use crate::{Extra, Resource};

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

impl Extra {
    /// The version of a definition, with the verbs and subresources that the server has for it.
    pub fn of_definition(
        definition: &Tree,
        version: &str,
        verbs: &'static [Verb],
        subresources: &'static [Subresource],
    ) -> Extra {
        let spec = definition.at("spec");
        let row = spec.list("versions").iter().find(|row| row.str("name") == version).unwrap_or(&Tree::Null);
        let (group, kind, list_kind) = (spec.str("group"), spec.str("names.kind"), spec.str("names.listKind"));
        let package: Vec<&str> = group.rsplit('.').collect();
        let name = |kind: &str| format!("{}.{version}.{kind}", package.join("."));
        let selectable = selectable(row.list("selectableFields"));
        let finish = |mut schema: Tree, kind: &str| {
            schema.set(GVK, list![gvk(group, version, kind)]);
            if let Some(selectable) = &selectable {
                schema.set("x-kubernetes-selectable-fields", selectable.clone());
            }
            schema
        };
        let mut schemas = Map::new();
        schemas.insert(name(kind), finish(object_schema(row.at("schema.openAPIV3Schema")), kind));
        schemas.insert(name(list_kind), finish(list_schema(&name(kind), kind, list_kind), list_kind));
        let resource = Resource {
            group: Str::new(group),
            version: Str::new(version),
            kind: Str::new(kind),
            plural: Str::new(spec.str("names.plural")),
            namespaced: spec.str("scope") == "Namespaced",
            verbs,
            subresources,
            schema: name(kind),
            list_schema: name(list_kind),
            returns_deleted: false,
            strategic_merge: false,
        };
        Extra { resources: vec![resource], schemas }
    }
}

fn selectable(fields: &[Tree]) -> Option<Tree> {
    let field = |field: &Tree| tree! { "fieldPath" => field.str("jsonPath").trim_start_matches('.') };
    (!fields.is_empty()).then(|| Tree::List(fields.iter().map(field).collect()))
}

fn object_schema(props: &Tree) -> Tree {
    let mut schema = published(props);
    schema.set_default("type", "object");
    add_object_fields(&mut schema);
    schema
}

fn described(text: &str) -> Tree {
    tree! { "description" => text, "type" => "string" }
}

/// Adds kind, apiVersion and metadata, which every object has.
fn add_object_fields(schema: &mut Tree) {
    let metadata = tree! { "description" => METADATA, "allOf" => list![reference(OBJECT_META)] };
    let properties = schema.child("properties");
    properties.set("apiVersion", described(API_VERSION));
    properties.set("kind", described(KIND));
    properties.set("metadata", metadata);
}

/// A schema as it is published, with what its extensions imply.
fn published(props: &Tree) -> Tree {
    let Tree::Map(map) = props else { return Tree::map_new() };
    let mut out = Map::new();
    for (key, value) in map.iter() {
        let value = match (key, value) {
            ("properties", Tree::Map(properties)) => {
                let entries = properties.iter().map(|(name, props)| (Str::new(name), published(props))).collect();
                Tree::Map(Map::from_entries(entries, |_| ()))
            }
            ("items" | "additionalProperties", Tree::Map(_)) => published(value),
            _ => value.clone(),
        };
        out.insert(key, value);
    }
    let mut out = Tree::Map(out);
    if out.bool("x-kubernetes-embedded-resource") {
        add_object_fields(&mut out);
        let required = out.list_entry("required");
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known.as_str() == Some(name)) {
                required.push(Tree::from(name));
            }
        }
    }
    if out.bool("x-kubernetes-int-or-string") && !out.has("anyOf") && !out.has("allOf") {
        out.set("anyOf", list![tree! { "type" => "integer" }, tree! { "type" => "string" }]);
    }
    out
}

fn list_schema(item: &str, kind: &str, list_kind: &str) -> Tree {
    let plural = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        kind.to_lowercase()
    );
    tree! {
        "description" => format!("{list_kind} is a list of {kind}"),
        "type" => "object",
        "required" => list!["items"],
        "properties" => tree! {
            "apiVersion" => described(API_VERSION),
            "kind" => described(KIND),
            "items" => tree! { "description" => plural, "type" => "array", "items" => reference(item) },
            "metadata" => tree! { "description" => LIST_METADATA, "allOf" => list![reference(LIST_META)] },
        },
    }
}
