//! Structural schemas: every value has a type outside of logical junctors, which may only restrict it.

use api::Tree;
use api::field::{Errors, FieldError, Path};
use regex_automata::nfa::thompson::pikevm::PikeVM;

/// The position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All violations, sorted by their text.
pub(super) fn validate(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut found = Errors::new();
    validate_node(props, Level::Root, path, &mut found);
    validate_completeness(props, props, path, path, &mut found);
    let mut sorted: Vec<FieldError> = found.iter().cloned().collect();
    sorted.sort_by_key(ToString::to_string);
    sorted.into_iter().for_each(|error| errors.push(error));
}

/// Whether a schema is structural.
pub(super) fn is_structural(props: &Tree) -> bool {
    let mut errors = Errors::new();
    validate(props, &Path::nil(), &mut errors);
    errors.is_empty()
}

fn entries<'a>(props: &'a Tree, key: &str) -> impl Iterator<Item = (&'a str, &'a Tree)> {
    props.get(key).and_then(Tree::as_map).into_iter().flat_map(|map| map.iter())
}

fn validate_node(props: &Tree, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if props.str("type") == "array" && !props.has("items") {
        errors.required(&path.field("items"), "must be specified");
    }
    if let Some(items @ Tree::Map(_)) = props.get("items") {
        validate_node(items, Level::Item, &path.field("items"), errors);
    }
    for (name, property) in entries(props, "properties") {
        validate_node(property, Level::Field, &path.field("properties").key(name), errors);
    }
    if let Some(additional) = props.get("additionalProperties").filter(|value| !value.is_null()) {
        if level == Level::Root {
            errors.forbidden(&path.field("additionalProperties"), "must not be used at the root");
        }
        if matches!(additional, Tree::Map(_)) {
            validate_node(additional, Level::Field, &path.field("additionalProperties"), errors);
        }
    }
    validate_extensions(props, path, errors);
    validate_values(props, is_int_or_string(props, "anyOf"), has_int_or_string_all_of(props), path, errors);
    validate_type(props, level, path, errors);
    validate_object(props, level, path, errors);
}

fn validate_extensions(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !props.bool("x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if props.bool(name) {
            errors.invalid(&path.field(name), true, "must be false if x-kubernetes-int-or-string is true");
        }
    }
}

fn validate_type(props: &Tree, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let (ty, path_of_type) = (props.str("type"), path.field("type"));
    let is_embedded = props.bool("x-kubernetes-embedded-resource");
    let is_free = props.bool("x-kubernetes-int-or-string") || props.bool("x-kubernetes-preserve-unknown-fields");
    if is_embedded && ty != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        match ty {
            "" => errors.required(&path_of_type, why),
            ty => errors.invalid(&path_of_type, ty, why),
        }
    } else if ty.is_empty() && !is_free {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&path_of_type, why);
    }
    if is_embedded && props.has("additionalProperties") {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.field("additionalProperties"), why);
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.invalid(&path_of_type, ty, "must be object at the root");
    }
}

/// The metadata of an object has its own schema, of which only the names can be restricted.
fn validate_object(props: &Tree, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let is_embedded = props.bool("x-kubernetes-embedded-resource");
    let is_object = level == Level::Root || is_embedded;
    let properties = path.field("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = props.at("properties").get(name).filter(|_| is_object)
            && property.str("type") != "string"
        {
            errors.invalid(&properties.key(name).field("type"), property.str("type"), "must be string");
        }
    }
    if let Some(metadata) = props.at("properties").get("metadata") {
        let path = properties.key("metadata");
        if is_object && metadata.str("type") != "object" {
            errors.invalid(&path.field("type"), metadata.str("type"), "must be object");
        }
        if level == Level::Root && restricts_metadata(metadata) {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.forbidden(&path, why);
        }
    }
    let keeps = props.bool("x-kubernetes-preserve-unknown-fields");
    if is_embedded && !keeps && entries(props, "properties").next().is_none() {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&properties, why);
    }
}

fn restricts_metadata(metadata: &Tree) -> bool {
    let names: Vec<&str> = entries(metadata, "properties").map(|(name, _)| name).collect();
    let only_names = names.iter().all(|name| matches!(*name, "name" | "generateName"));
    let others = metadata.as_map().into_iter().flat_map(|map| map.keys());
    let mut others = others.filter(|key| !matches!(*key, "type" | "default" | "properties"));
    !only_names || others.any(|key| !is_zero(metadata.at(key)))
}

fn is_zero(value: &Tree) -> bool {
    match value {
        Tree::Null | Tree::Bool(false) => true,
        Tree::Str(text) => text.is_empty(),
        Tree::List(items) => items.is_empty(),
        _ => false,
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, which is how older generators wrote it.
fn is_int_or_string(props: &Tree, key: &str) -> bool {
    let is_only =
        |schema: &Tree, ty: &str| schema.as_map().is_some_and(|map| map.len() == 1) && schema.str("type") == ty;
    matches!(props.list(key), [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

fn has_int_or_string_all_of(props: &Tree) -> bool {
    props.list("allOf").first().is_some_and(|first| is_int_or_string(first, "anyOf"))
}

fn validate_values(props: &Tree, skip_any: bool, skip_first: bool, path: &Path<'_>, errors: &mut Errors) {
    if !skip_any {
        each(
            props,
            "anyOf",
            path,
            |index, inner, path, errors| {
                let _ = index;
                validate_nested(inner, false, path, errors);
            },
            errors,
        );
    }
    each(
        props,
        "allOf",
        path,
        |index, inner, path, errors| {
            validate_nested(inner, skip_first && index == 0, path, errors);
        },
        errors,
    );
    each(props, "oneOf", path, |_, inner, path, errors| validate_nested(inner, false, path, errors), errors);
    if let Some(inner @ Tree::Map(_)) = props.get("not") {
        validate_nested(inner, false, &path.field("not"), errors);
    }
    let pattern = props.str("pattern");
    if !pattern.is_empty()
        && let Err(error) = PikeVM::new(pattern)
    {
        let why = super::pattern::go_error(pattern, &error.to_string());
        errors.invalid(
            &path.field("pattern"),
            pattern,
            &format!("must be a valid regular expression, but isn't: {why}"),
        );
    }
}

fn each(
    props: &Tree,
    key: &str,
    path: &Path<'_>,
    visit: impl Fn(usize, &Tree, &Path<'_>, &mut Errors),
    errors: &mut Errors,
) {
    for (index, inner) in props.list(key).iter().enumerate() {
        visit(index, inner, &path.field(key).index(index), errors);
    }
}

/// Fields that a schema inside of a junctor must not have, and the error.
const FORBIDDEN: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

fn validate_nested(props: &Tree, skip_any: bool, path: &Path<'_>, errors: &mut Errors) {
    validate_values(props, skip_any, false, path, errors);
    if let Some(items @ Tree::Map(_)) = props.get("items") {
        validate_nested(items, false, &path.field("items"), errors);
    }
    for (name, property) in entries(props, "properties") {
        validate_nested(property, false, &path.field("properties").key(name), errors);
    }
    for (key, why) in FORBIDDEN {
        if props.get(key).is_some_and(|value| !is_zero(value)) {
            errors.forbidden(&path.field(key), why);
        }
    }
    if props.at("properties").get("metadata").is_some() {
        let why = "must not be specified in a nested context";
        errors.forbidden(&path.field("properties").key("metadata"), why);
    }
}

/// Fields that the root's junctors restrict have to be declared.
fn validate_completeness(props: &Tree, own: &Tree, own_path: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(inner @ Tree::Map(_)) = props.get("not") {
        complete_nested(inner, Some(own), own_path, &path.field("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        each(
            props,
            key,
            path,
            |_, inner, path, errors| complete_nested(inner, Some(own), own_path, path, errors),
            errors,
        );
    }
}

fn complete_nested(props: &Tree, own: Option<&Tree>, own_path: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(own) = own else {
        return errors.required(own_path, &format!("because it is defined in {path}"));
    };
    validate_completeness(props, own, own_path, path, errors);
    if let Some(items @ Tree::Map(_)) = props.get("items") {
        let declared = own.get("items").filter(|items| matches!(items, Tree::Map(_)));
        complete_nested(items, declared, &own_path.field("items"), &path.field("items"), errors);
    }
    for (name, property) in entries(props, "properties") {
        let declared = own.at("properties").get(name);
        let (own_properties, properties) = (own_path.field("properties"), path.field("properties"));
        complete_nested(property, declared, &own_properties.key(name), &properties.key(name), errors);
    }
}
