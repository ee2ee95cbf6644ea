//! Small checks shared by the parts of a pod spec.

use api::Tree;
use api::field::{Errors, Path};
use api::validation;

pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const NOT_POSITIVE: &str = "must be greater than zero";

pub(crate) fn dns_label(text: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, text, validation::dns1123_label(text));
}

pub(crate) fn dns_subdomain(text: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, text, validation::dns1123_subdomain(text));
}

pub(super) fn qualified_name(text: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, text, validation::qualified_name(text));
}

/// A Required error if this text field is missing.
pub(super) fn required(tree: &Tree, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if tree.get(key).and_then(Tree::as_str).unwrap_or("").is_empty() {
        errors.required(&path.field(key), "");
    }
}

pub(crate) fn required_all(tree: &Tree, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        required(tree, key, path, errors);
    }
}

/// A field that is set must have one of these values.
pub(super) fn one_of(tree: &Tree, key: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = tree.get(key).and_then(Tree::as_str)
        && !supported.contains(&value)
    {
        errors.not_supported(&path.field(key), value, supported);
    }
}

/// Like `one_of`, for required fields.
pub(crate) fn required_one_of(tree: &Tree, key: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match tree.get(key).and_then(Tree::as_str).unwrap_or("") {
        "" => errors.required(&path.field(key), ""),
        value if !supported.contains(&value) => errors.not_supported(&path.field(key), value, supported),
        _ => {}
    }
}

pub(crate) fn not_negative(tree: &Tree, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = tree.int(key).filter(|number| *number < 0) {
        errors.invalid(&path.field(key), number, NEGATIVE);
    }
}

/// A number within bounds, if it is set.
pub(super) fn in_range(tree: &Tree, key: &str, (low, high): (i64, i64), path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = tree.int(key).filter(|number| *number < low || *number > high) {
        errors.invalid(&path.field(key), number, &range_text(low, high));
    }
}

pub(crate) fn range_text(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// User and group ids.
pub(super) fn id(tree: &Tree, key: &str, path: &Path<'_>, errors: &mut Errors) {
    in_range(tree, key, (0, i64::from(i32::MAX)), path, errors);
}

pub(crate) fn file_mode(tree: &Tree, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = tree.int(key).filter(|mode| *mode < 0 || *mode > 0o777) {
        errors.invalid(&path.field(key), mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// A path without `..` as an element.
pub(crate) fn no_backsteps(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// A relative path that stays below its start.
pub(crate) fn local_descending(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.invalid(path, text, "must be a relative path");
    }
    no_backsteps(text, path, errors);
}

/// Like `local_descending`, without names reserved by the kubelet.
pub(crate) fn local_non_reserved(text: &str, path: &Path<'_>, errors: &mut Errors) {
    local_descending(text, path, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.invalid(path, text, "must not start with '..'");
    }
}

pub(super) fn port_number(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if !(1..=65_535).contains(&number) {
        errors.invalid(path, number, &range_text(1, 65_535));
    }
}

/// A port by number or by name.
pub(super) fn port(port: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Tree::Str(name) => errors.invalid_all(path, name, validation::port_name(name)),
        port => port_number(port.as_int().unwrap_or(0), path, errors),
    }
}
