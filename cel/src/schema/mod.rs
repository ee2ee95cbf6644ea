//! Structural schemas: the part that CEL needs to declare types and to read values.

mod decl;
mod escape;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Map, Tree};

pub use decl::{DeclType, Declaration};
pub use escape::{escape, is_reserved, unescape};

/// The maximum depth of a schema, which bounds recursion.
const MAX_DEPTH: usize = api::tree::MAX_DEPTH;
/// The maximum length of the names of objects.
const NAME_LENGTH: i64 = 253;

/// `type` of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaType {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    /// No type, or an unknown one.
    #[default]
    None,
}

/// `format` of a string, as far as CEL has a type for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    Byte,
    Duration,
    Date,
    DateTime,
    #[default]
    Other,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// A structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub kind: SchemaType,
    pub format: Format,
    pub nullable: bool,
    /// The properties of an object; none if `properties` is missing.
    pub properties: Option<BTreeMap<String, Arc<Schema>>>,
    pub additional_properties: Option<Arc<Schema>>,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<String>,
    pub max_length: Option<i64>,
    pub max_items: Option<i64>,
    pub max_properties: Option<i64>,
    /// The values of `enum` if there are any.
    pub enumeration: Vec<Tree>,
    pub has_default: bool,
    pub int_or_string: bool,
    pub embedded_resource: bool,
    pub preserve_unknown_fields: bool,
    pub list_type: ListType,
    pub list_map_keys: Vec<String>,
}

/// A schema that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("the schema is nested more than {MAX_DEPTH} levels")]
    Depth,
}

impl Schema {
    /// Reads a schema from its JSON form, an `openAPIV3Schema` or a part of it.
    pub fn from_tree(tree: &Tree) -> Result<Schema, SchemaError> {
        read(tree, MAX_DEPTH)
    }

    /// The schema of a whole object, which has `apiVersion`, `kind`, `metadata.name` and `metadata.generateName`.
    pub fn with_object_meta(&self) -> Schema {
        let mut schema = self.clone();
        let mut properties = self.properties.clone().unwrap_or_default();
        if has_object_meta(&properties) {
            return schema;
        }
        let metadata = properties.get("metadata").and_then(|metadata| metadata.properties.as_ref());
        let capped = |name: &str, length: i64| {
            let own = metadata.and_then(|fields| fields.get(name)).and_then(|field| field.max_length);
            string(Some(own.map_or(length, |own| own.min(length))))
        };
        let fields = [("name", capped("name", NAME_LENGTH)), ("generateName", capped("generateName", NAME_LENGTH - 1))];
        properties.insert("metadata".into(), Arc::new(object(fields)));
        for name in ["kind", "apiVersion"] {
            properties.insert(name.into(), Arc::new(string(None)));
        }
        schema.properties = Some(properties);
        schema
    }

    /// The schema of a property by its name in the object.
    pub(crate) fn property(&self, name: &str) -> Option<&Schema> {
        match &self.properties {
            Some(properties) => properties.get(name).map(|schema| &**schema),
            None => self.additional_properties.as_deref(),
        }
    }
}

fn string(max_length: Option<i64>) -> Schema {
    Schema { kind: SchemaType::String, max_length, ..Schema::default() }
}

fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    let properties = fields.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect();
    Schema { kind: SchemaType::Object, properties: Some(properties), ..Schema::default() }
}

fn has_object_meta(properties: &BTreeMap<String, Arc<Schema>>) -> bool {
    let is = |fields: &BTreeMap<String, Arc<Schema>>, name: &str, kind: SchemaType| {
        fields.get(name).is_some_and(|schema| schema.kind == kind)
    };
    let metadata = properties.get("metadata").and_then(|metadata| metadata.properties.as_ref());
    is(properties, "kind", SchemaType::String)
        && is(properties, "apiVersion", SchemaType::String)
        && is(properties, "metadata", SchemaType::Object)
        && metadata.is_some_and(|fields| {
            is(fields, "name", SchemaType::String) && is(fields, "generateName", SchemaType::String)
        })
}

fn read(tree: &Tree, levels: usize) -> Result<Schema, SchemaError> {
    let Some(below) = levels.checked_sub(1) else { return Err(SchemaError::Depth) };
    let child = |key: &str| match tree.get(key) {
        Some(child @ Tree::Map(_)) => read(child, below).map(|schema| Some(Arc::new(schema))),
        _ => Ok(None),
    };
    let properties = match tree.get("properties") {
        Some(Tree::Map(map)) => Some(read_properties(map, below)?),
        _ => None,
    };
    let mut schema = read_own(tree);
    schema.properties = properties;
    schema.items = child("items")?;
    schema.additional_properties = child("additionalProperties")?;
    // An embedded object has the metadata of every object.
    Ok(if schema.embedded_resource { schema.with_object_meta() } else { schema })
}

fn read_properties(map: &Map, levels: usize) -> Result<BTreeMap<String, Arc<Schema>>, SchemaError> {
    map.iter().map(|(name, schema)| Ok((name.to_owned(), Arc::new(read(schema, levels)?)))).collect()
}

/// Reads the keywords for the schema's own value.
fn read_own(tree: &Tree) -> Schema {
    let strings = |key: &str| tree.list(key).iter().filter_map(Tree::as_str).map(str::to_owned).collect();
    Schema {
        kind: read_type(tree.str("type")),
        format: read_format(tree.str("format")),
        nullable: tree.bool("nullable"),
        required: strings("required"),
        max_length: tree.int("maxLength"),
        max_items: tree.int("maxItems"),
        max_properties: tree.int("maxProperties"),
        enumeration: tree.list("enum").to_vec(),
        has_default: tree.has("default"),
        int_or_string: tree.bool("x-kubernetes-int-or-string"),
        embedded_resource: tree.bool("x-kubernetes-embedded-resource"),
        preserve_unknown_fields: tree.bool("x-kubernetes-preserve-unknown-fields"),
        list_type: read_list_type(tree.str("x-kubernetes-list-type")),
        list_map_keys: strings("x-kubernetes-list-map-keys"),
        ..Schema::default()
    }
}

fn read_type(text: &str) -> SchemaType {
    match text {
        "object" => SchemaType::Object,
        "array" => SchemaType::Array,
        "string" => SchemaType::String,
        "number" => SchemaType::Number,
        "integer" => SchemaType::Integer,
        "boolean" => SchemaType::Boolean,
        _ => SchemaType::None,
    }
}

fn read_format(text: &str) -> Format {
    match text {
        "byte" => Format::Byte,
        "duration" => Format::Duration,
        "date" => Format::Date,
        "date-time" => Format::DateTime,
        _ => Format::Other,
    }
}

fn read_list_type(text: &str) -> ListType {
    match text {
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Atomic,
    }
}
