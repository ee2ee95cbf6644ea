//! The schema of a custom resource, compiled from the JSON of its definition. A compiled schema belongs to one version
//! of one definition and is freed with it.

use std::sync::OnceLock;

use api::{Str, Tree};
use regex_automata::nfa::thompson::pikevm::PikeVM;

/// The JSON type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl JsonType {
    pub(crate) fn parse(name: &str) -> Option<JsonType> {
        Some(match name {
            "object" => JsonType::Object,
            "array" => JsonType::Array,
            "string" => JsonType::String,
            "integer" => JsonType::Integer,
            "number" => JsonType::Number,
            "boolean" => JsonType::Boolean,
            _ => return None,
        })
    }

    /// Its name in a schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
        }
    }
}

/// The additional properties that an object may have.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Not specified.
    #[default]
    Unset,
    Any,
    Forbidden,
    Schema(Box<Schema>),
}

/// How a list is merged and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub ty: Option<JsonType>,
    pub nullable: bool,
    pub default: Option<Tree>,
    /// Sorted by name.
    pub properties: Vec<(Str, Schema)>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub preserves_unknown: bool,
    pub is_embedded: bool,
    pub is_int_or_string: bool,
    pub list_type: ListType,
    pub list_keys: Vec<Str>,
    pub is_atomic_map: bool,
    pub(crate) checks: Checks,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// The checks of a value besides its type.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub values: Vec<Tree>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<Str>,
    pub format: Str,
}

/// A regular expression, compiled at its first use.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub text: Str,
    compiled: OnceLock<Option<PikeVM>>,
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        Pattern { text: Str::new(text), compiled: OnceLock::new() }
    }

    /// Whether a text matches; None if the expression is invalid.
    pub(crate) fn matches(&self, text: &str) -> Option<bool> {
        let vm = self.compiled.get_or_init(|| PikeVM::new(&self.text).ok()).as_ref()?;
        Some(vm.is_match(&mut vm.create_cache(), text))
    }
}

impl Schema {
    /// Compiles a schema. A definition that passed validation always compiles.
    pub(crate) fn compile(props: &Tree) -> Schema {
        let children = |key: &str| props.list(key).iter().map(Schema::compile).collect::<Vec<_>>();
        let child = |key: &str| matches!(props.at(key), Tree::Map(_)).then(|| Box::new(Schema::compile(props.at(key))));
        Schema {
            ty: JsonType::parse(props.str("type")),
            nullable: props.bool("nullable"),
            default: props.get("default").filter(|value| !value.is_null()).cloned(),
            properties: compile_properties(props.at("properties")),
            additional: compile_additional(props.at("additionalProperties")),
            items: child("items"),
            preserves_unknown: props.bool("x-kubernetes-preserve-unknown-fields"),
            is_embedded: props.bool("x-kubernetes-embedded-resource"),
            is_int_or_string: props.bool("x-kubernetes-int-or-string"),
            list_type: match props.str("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            list_keys: texts(props.list("x-kubernetes-list-map-keys")),
            is_atomic_map: props.str("x-kubernetes-map-type") == "atomic",
            checks: Checks::compile(props),
            all_of: children("allOf"),
            any_of: children("anyOf"),
            one_of: children("oneOf"),
            not: child("not"),
        }
    }

    /// The property of a name.
    pub(crate) fn property(&self, name: &str) -> Option<&Schema> {
        let at = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of additional properties, if any.
    pub(crate) fn additional_schema(&self) -> Option<&Schema> {
        match &self.additional {
            Additional::Schema(schema) => Some(schema),
            _ => None,
        }
    }
}

fn compile_properties(properties: &Tree) -> Vec<(Str, Schema)> {
    let entries = properties.as_map().into_iter().flat_map(|map| map.iter());
    entries.map(|(name, props)| (Str::new(name), Schema::compile(props))).collect()
}

fn compile_additional(additional: &Tree) -> Additional {
    match additional {
        Tree::Bool(true) => Additional::Any,
        Tree::Bool(false) => Additional::Forbidden,
        Tree::Map(_) => Additional::Schema(Box::new(Schema::compile(additional))),
        _ => Additional::Unset,
    }
}

impl Checks {
    fn compile(props: &Tree) -> Checks {
        let pattern = props.str("pattern");
        Checks {
            values: props.list("enum").to_vec(),
            maximum: number(props.at("maximum")),
            exclusive_maximum: props.bool("exclusiveMaximum"),
            minimum: number(props.at("minimum")),
            exclusive_minimum: props.bool("exclusiveMinimum"),
            multiple_of: number(props.at("multipleOf")),
            max_length: props.int("maxLength"),
            min_length: props.int("minLength"),
            pattern: (!pattern.is_empty()).then(|| Pattern::new(pattern)),
            max_items: props.int("maxItems"),
            min_items: props.int("minItems"),
            unique_items: props.bool("uniqueItems"),
            max_properties: props.int("maxProperties"),
            min_properties: props.int("minProperties"),
            required: texts(props.list("required")),
            format: Str::new(supported_format(props)),
        }
    }
}

/// Unknown formats are ignored.
fn supported_format(props: &Tree) -> &str {
    let format = props.str("format");
    let is_supported = match props.str("type") {
        "" | "string" => super::formats::is_known(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if is_supported && !props.bool("x-kubernetes-int-or-string") { format } else { "" }
}

/// A number of a schema, however it is written.
pub(crate) fn number(tree: &Tree) -> Option<f64> {
    match tree {
        Tree::Int(value) => Some(*value as f64),
        Tree::Float(value) => Some(*value),
        _ => None,
    }
}

fn texts(items: &[Tree]) -> Vec<Str> {
    items.iter().filter_map(Tree::as_str).map(Str::new).collect()
}
