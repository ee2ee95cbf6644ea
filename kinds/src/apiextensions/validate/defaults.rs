//! Defaults have to be valid values of their schema, without unknown fields.

use api::Tree;
use api::field::{Errors, Path};

use crate::custom::{
    EvaluationOptions, RuleSet, Schema, conform_metadata, evaluate_rules, prune_value, validate as validate_value,
    validate_embedded,
};

/// The default of a schema and of every schema in it.
pub(super) fn validate(props: &Tree, prune: bool, path: &Path<'_>, errors: &mut Errors) {
    validate_node(props, true, false, prune, path, errors);
}

fn validate_node(props: &Tree, is_object: bool, in_metadata: bool, prune: bool, path: &Path<'_>, errors: &mut Errors) {
    if !matches!(props, Tree::Map(_)) {
        return;
    }
    let is_object = is_object || props.bool("x-kubernetes-embedded-resource");
    let in_metadata = in_metadata && !is_object;
    if let Some(default) = props.get("default").filter(|default| !default.is_null()) {
        validate_default(props, default, is_object, prune && !in_metadata, &path.field("default"), errors);
    }
    if let items @ Tree::Map(_) = props.at("items") {
        validate_node(items, false, in_metadata, prune, &path.field("items"), errors);
    }
    for (name, inner) in props.map("properties").iter() {
        let is_meta = is_object && matches!(name, "metadata" | "apiVersion" | "kind");
        let properties = path.field("properties");
        validate_node(inner, false, in_metadata || is_meta, prune, &properties.key(name), errors);
    }
}

fn validate_default(props: &Tree, default: &Tree, is_object: bool, prune: bool, path: &Path<'_>, errors: &mut Errors) {
    let mut schema = Schema::compile(props);
    schema.is_embedded |= is_object;
    if prune && !prune_value(&mut default.clone(), &schema).is_empty() {
        errors.invalid(path, default, "must not have unknown fields");
    }
    let prefix = path.to_string();
    let before = errors.len();
    if let Err(error) = conform_metadata(&mut default.clone(), &schema, &prefix) {
        error.report(errors);
    } else {
        validate_embedded(default, &schema, &prefix, errors);
    }
    if errors.len() == before {
        validate_value(default, None, &schema, &prefix, errors);
    }
    if errors.len() == before {
        evaluate(props, default, is_object, path, errors);
    }
}

/// A default has to satisfy the rules of its schema, both as an unchanged value and as a new one.
fn evaluate(props: &Tree, default: &Tree, is_object: bool, path: &Path<'_>, errors: &mut Errors) {
    let rules = if is_object { RuleSet::for_object(props) } else { RuleSet::for_value(props) };
    let Some(rules) = rules else { return };
    let before = errors.len();
    let options = EvaluationOptions::default();
    evaluate_rules(&rules, default, Some(default), options, path, errors);
    if errors.len() == before {
        evaluate_rules(&rules, default, None, options, path, errors);
    }
}
