//! The rules of a schema besides its structure: what is not supported, lists that are sets or maps, and defaults.

use api::Tree;
use api::field::{Errors, Path};

use super::super::printed;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const META_FIELDS: &[&str] = &["metadata", "kind", "apiVersion"];

/// The context for everything below a schema.
#[derive(Clone, Copy, Default)]
pub(super) struct SchemaContext<'a> {
    /// Why defaults are not allowed.
    forbids_defaults: Option<&'a str>,
    /// Inside of metadata, kind or apiVersion of an object.
    in_metadata: bool,
}

/// The rules that apply; an update does not tighten rules that the stored definition violates.
#[derive(Clone, Copy)]
pub(super) struct SchemaChecks {
    pub valid_types: bool,
    pub atomic_sets: bool,
    pub list_keys: bool,
}

impl SchemaChecks {
    pub(super) const ALL: SchemaChecks = SchemaChecks { valid_types: true, atomic_sets: true, list_keys: true };
}

/// Calls `visit` for a schema and all schemas in it; true if it returns true for one.
pub(super) fn any_schema(props: &Tree, visit: &mut impl FnMut(&Tree) -> bool) -> bool {
    if !matches!(props, Tree::Map(_)) {
        return false;
    }
    if visit(props) {
        return true;
    }
    for key in ["items", "allOf", "anyOf", "oneOf", "not", "additionalProperties", "additionalItems"] {
        let inner = props.at(key);
        let list = inner.as_list().unwrap_or(std::slice::from_ref(inner));
        if list.iter().any(|inner| any_schema(inner, visit)) {
            return true;
        }
    }
    ["properties", "patternProperties", "definitions", "dependencies"].iter().any(|key| {
        let entries = props.get(key).and_then(Tree::as_map).into_iter().flat_map(|map| map.iter());
        entries.into_iter().any(|(_, inner)| any_schema(inner, visit))
    })
}

pub(super) fn validate_root(props: &Tree, rules: SchemaChecks, path: &Path<'_>, errors: &mut Errors) {
    validate(props, SchemaContext::default(), true, rules, path, errors);
}

fn validate(
    props: &Tree,
    scope: SchemaContext<'_>,
    is_root: bool,
    rules: SchemaChecks,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !matches!(props, Tree::Map(_)) {
        return;
    }
    validate_support(props, scope, rules, path, errors);
    if props.bool("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.field("uniqueItems"), why);
    }
    validate_additional(props, scope, rules, path, errors);
    validate_properties(props, scope, is_root, rules, path, errors);
    validate(props.at("not"), scope, false, rules, &path.field("not"), errors);
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, inner) in props.list(key).iter().enumerate() {
            validate(inner, scope, false, rules, &path.field(key).index(index), errors);
        }
    }
    validate_map(props, "definitions", scope, rules, path, errors);
    match props.at("items") {
        Tree::List(items) => {
            for (index, inner) in items.iter().enumerate() {
                validate(inner, scope, false, rules, &path.field("items").index(index), errors);
            }
        }
        items => validate(items, scope, false, rules, &path.field("items"), errors),
    }
    validate_map(props, "dependencies", scope, rules, path, errors);
    validate_kubernetes(props, rules, path, errors);
}

fn validate_map(
    props: &Tree,
    key: &str,
    scope: SchemaContext<'_>,
    rules: SchemaChecks,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (name, inner) in props.map(key).iter() {
        validate(inner, scope, false, rules, &path.field(key).key(name), errors);
    }
}

const UNSUPPORTED: &[(&str, &str)] = &[
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
];

fn validate_support(props: &Tree, scope: SchemaContext<'_>, rules: SchemaChecks, path: &Path<'_>, errors: &mut Errors) {
    let ty = props.str("type");
    if rules.valid_types && !ty.is_empty() && !TYPES.contains(&ty) {
        errors.not_supported(&path.field("type"), ty, TYPES);
    }
    if props.has("default")
        && let Some(reason) = scope.forbids_defaults
    {
        errors.forbidden(&path.field("default"), &format!("must not be set {reason}"));
    }
    for (key, why) in UNSUPPORTED {
        let is_set = match props.get(key) {
            None | Some(Tree::Null) => false,
            Some(Tree::Str(text)) => !text.is_empty() || *key == "$ref",
            Some(Tree::Map(map)) => !map.is_empty() || *key == "dependencies",
            Some(_) => true,
        };
        if is_set {
            errors.forbidden(&path.field(key), why);
        }
    }
    if ty == "null" {
        errors.forbidden(&path.field("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if props.at("items").as_list().is_some_and(|items| !items.is_empty()) {
        errors.forbidden(&path.field("items"), "items must be a schema object and not an array");
    }
    if scope.in_metadata && props.bool("x-kubernetes-embedded-resource") {
        let why = "must not be used inside of resource meta";
        errors.forbidden(&path.field("x-kubernetes-embedded-resource"), why);
    }
}

fn validate_additional(
    props: &Tree,
    scope: SchemaContext<'_>,
    rules: SchemaChecks,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let additional = props.at("additionalProperties");
    if additional.is_null() {
        return;
    }
    let path = path.field("additionalProperties");
    if !props.map("properties").is_empty() && additional.as_bool() != Some(true) {
        errors.forbidden(&path, "additionalProperties and properties are mutual exclusive");
    }
    let scope = match scope.in_metadata {
        true => {
            SchemaContext { forbids_defaults: Some("inside additionalProperties applying to object metadata"), ..scope }
        }
        false => scope,
    };
    validate(additional, scope, false, rules, &path, errors);
}

fn validate_properties(
    props: &Tree,
    scope: SchemaContext<'_>,
    is_root: bool,
    rules: SchemaChecks,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let is_object = is_root || props.bool("x-kubernetes-embedded-resource");
    for (name, inner) in props.map("properties").iter() {
        let reason = format!("in top-level {name}");
        let mut below = scope;
        if is_object && META_FIELDS.contains(&name) {
            below.in_metadata = true;
            if is_root {
                below.forbids_defaults = Some(&reason);
            }
        }
        validate(inner, below, false, rules, &path.field("properties").key(name), errors);
    }
}

fn validate_kubernetes(props: &Tree, rules: SchemaChecks, path: &Path<'_>, errors: &mut Errors) {
    if props.at("x-kubernetes-preserve-unknown-fields").as_bool() == Some(false) {
        errors.invalid(&path.field("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined");
    }
    validate_map_type(props, path, errors);
    validate_list_type(props, rules, path, errors);
    validate_list_keys(props, path, errors);
    if rules.list_keys {
        validate_key_fields(props, path, errors);
    }
    super::rules::validate_fields(props, path, errors);
}

fn require_type(props: &Tree, wanted: &str, extension: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let why = format!("must be {wanted} if {extension} is specified");
    match props.str("type") {
        ty if ty == wanted => return true,
        "" => errors.required(&path.field("type"), &why),
        ty => errors.invalid(&path.field("type"), ty, &why),
    }
    false
}

fn validate_map_type(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    const NAME: &str = "x-kubernetes-map-type";
    let Some(ty) = props.at(NAME).as_str() else { return };
    require_type(props, "object", NAME, path, errors);
    if !matches!(ty, "atomic" | "granular") {
        errors.not_supported(&path.field(NAME), ty, &["atomic", "granular"]);
    }
}

const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

fn validate_list_type(props: &Tree, rules: SchemaChecks, path: &Path<'_>, errors: &mut Errors) {
    let Some(ty) = props.at(LIST_TYPE).as_str() else { return };
    if require_type(props, "array", LIST_TYPE, path, errors) && rules.atomic_sets && ty == "set" {
        let item = props.at("items");
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        if let Some(key) = non_atomic(item) {
            let shown = item.at(LIST_TYPE);
            errors.invalid(&path.field("items").field(key), shown, why);
        }
    }
    if !matches!(ty, "atomic" | "set" | "map") {
        errors.not_supported(&path.field(LIST_TYPE), ty, &["atomic", "set", "map"]);
    }
}

/// The extension by which an item of a set would have to be atomic.
pub(super) fn non_atomic(item: &Tree) -> Option<&'static str> {
    match item.str("type") {
        "array" if !matches!(item.str(LIST_TYPE), "" | "atomic") => Some(LIST_TYPE),
        "object" if item.str("x-kubernetes-map-type") != "atomic" => Some("x-kubernetes-map-type"),
        _ => None,
    }
}

fn validate_list_keys(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (keys, ty) = (props.list(LIST_KEYS), props.at(LIST_TYPE).as_str());
    if !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match ty {
            None => errors.required(&path.field(LIST_TYPE), why),
            Some("map") => {}
            Some(ty) => errors.invalid(&path.field(LIST_TYPE), ty, why),
        }
    }
    if ty != Some("map") {
        return;
    }
    if keys.is_empty() {
        errors.required(&path.field(LIST_KEYS), "must not be empty if x-kubernetes-list-type is map");
    }
    let items = path.field("items");
    match props.at("items") {
        Tree::Map(_) => {}
        Tree::List(_) => {
            let why = "must only have a single schema if x-kubernetes-list-type is map";
            return errors.invalid(&items, printed::schema(props.at("items")), why);
        }
        _ => return errors.required(&items, "must have a schema if x-kubernetes-list-type is map"),
    }
    let item = props.at("items");
    if item.str("type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(&items.field("type"), item.str("type"), why);
    }
    validate_item_keys(props, path, errors);
}

fn validate_item_keys(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (item, items) = (props.at("items"), path.field("items"));
    let mut seen = Vec::new();
    for key in props.list(LIST_KEYS).iter().filter_map(Tree::as_str) {
        match item.at("properties").get(key) {
            Some(property) if matches!(property.str("type"), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let properties = items.field("properties");
                errors.invalid(&properties.key(key).field("type"), item.str("type"), why);
            }
            Some(_) => {}
            None => {
                let why = "entries must all be names of item properties";
                errors.invalid(&path.field(LIST_KEYS), props.at(LIST_KEYS), why);
            }
        }
        if seen.contains(&key) {
            errors.invalid(&path.field(LIST_KEYS), props.at(LIST_KEYS), "must not contain duplicate entries");
        }
        seen.push(key);
    }
}

/// Items and their keys are always there.
pub(super) fn validate_key_fields(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (item, ty) = (props.at("items"), props.str(LIST_TYPE));
    if !matches!(item, Tree::Map(_)) || !matches!(ty, "set" | "map") {
        return;
    }
    let items = path.field("items");
    if item.bool("nullable") {
        errors.forbidden(&items.field("nullable"), &format!("cannot be nullable when x-kubernetes-list-type is {ty}"));
    }
    if ty == "set" {
        return;
    }
    let properties = items.field("properties");
    for key in props.list(LIST_KEYS).iter().filter_map(Tree::as_str) {
        let Some(property) = item.at("properties").get(key) else { continue };
        let is_required = item.list("required").iter().any(|name| name.as_str() == Some(key));
        let path = properties.key(key);
        if !is_required && !property.has("default") {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&path.field("default"), why);
        }
        if property.bool("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&path.field("nullable"), why);
        }
    }
}
