//! Shared by the kinds of dynamic resource allocation: names, limited lists, taints, opaque configuration.

use api::Tree;
use api::field::{Errors, Path};
use api::json;
use api::validation::{c_identifier, dns1123_label, dns1123_subdomain, label_value, qualified_name};

use crate::checks::validate_driver_name;
use crate::kind::Context;
use crate::podspec::small_set::SmallSet;

const MAX_POOL_BYTES: usize = 253;
const MAX_ID_BYTES: usize = 32;
const MAX_PARAMETER_BYTES: usize = 10 * 1024;
pub(crate) const MAX_CONFIGS: usize = 32;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Validates each item, or only reports that there are too many.
pub(crate) fn validate_items(
    items: &[Tree],
    max: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    mut validate: impl FnMut(&Tree, &Path<'_>, &mut Errors),
) {
    if items.len() > max {
        return errors.too_many(path, items.len(), max);
    }
    for (index, item) in items.iter().enumerate() {
        validate(item, &path.index(index), errors);
    }
}

/// The indexes of items with a duplicate key.
pub(super) fn duplicates<'a>(items: &'a [Tree], key: impl Fn(&'a Tree) -> &'a str) -> Vec<usize> {
    let mut seen = SmallSet::new();
    (0..items.len()).filter(|at| !seen.insert(key(&items[*at]))).collect()
}

/// The key of a string item.
pub(super) fn itself(item: &Tree) -> &str {
    item.as_str().unwrap_or("")
}

pub(crate) fn validate_label(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name {
        "" => errors.required(path, ""),
        name => errors.invalid_all(path, name, dns1123_label(name)),
    }
}

/// Subdomains separated by slashes.
pub(crate) fn validate_pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_BYTES {
        errors.too_long(path, MAX_POOL_BYTES);
    }
    for part in name.split('/') {
        errors.invalid_all(path, part, dns1123_subdomain(part));
    }
}

/// `domain/identifier`, or an identifier in the driver's domain.
pub(crate) fn validate_attribute_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => validate_identifier(id, path, errors),
        [domain, id] => {
            match domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => validate_driver_name(domain, path, errors),
            }
            match id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => validate_identifier(id, path, errors),
            }
        }
        _ => errors.invalid(path, name, "must not contain more than one slash"),
    }
}

pub(crate) fn validate_full_attribute_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_attribute_name(name, path, errors);
    if !name.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn validate_identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > MAX_ID_BYTES {
        errors.too_long(path, MAX_ID_BYTES);
    }
    errors.invalid_all(path, id, c_identifier(id));
}

/// Opaque driver parameters.
pub(crate) fn validate_configuration(config: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (opaque, path) = (config.at("opaque"), path.field("opaque"));
    if opaque.is_null() {
        return errors.required(&path, "");
    }
    validate_driver_name(opaque.str("driver"), &path.field("driver"), errors);
    validate_raw(opaque.at("parameters"), MAX_PARAMETER_BYTES, &path.field("parameters"), errors);
}

/// A JSON object of limited size.
pub(crate) fn validate_raw(value: &Tree, max: usize, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Tree::Null => errors.required(path, ""),
        value if json::encode(value, None).len() > max => errors.too_long(path, max),
        Tree::Map(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

pub(crate) fn validate_taint(taint: &Tree, old_effect: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    let (key, value, effect) = (taint.str("key"), taint.str("value"), taint.str("effect"));
    errors.invalid_all(&path.field("key"), key, qualified_name(key));
    errors.invalid_all(&path.field("value"), value, label_value(value));
    if old_effect == Some(effect) {
        return;
    }
    match effect {
        "" => errors.required(&path.field("effect"), ""),
        effect if !EFFECTS.contains(&effect) => errors.not_supported(&path.field("effect"), effect, EFFECTS),
        _ => {}
    }
}

pub(crate) fn validate_tolerations(tolerations: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        validate_toleration(toleration, &path.index(index), errors);
    }
}

fn validate_toleration(toleration: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (key, value) = (toleration.str("key"), toleration.str("value"));
    if !key.is_empty() {
        errors.invalid_all(&path.field("key"), key, qualified_name(key));
    }
    match toleration.str("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.field("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errors.invalid_all(&path.field("value"), value, label_value(value)),
        "" => errors.required(&path.field("operator"), ""),
        operator => errors.not_supported(&path.field("operator"), operator, &["Equal", "Exists"]),
    }
    let effect = toleration.str("effect");
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.field("effect"), effect, EFFECTS);
    }
}

/// Conditions that must be true before a device is used, and conditions that abort the wait.
pub(crate) fn validate_binding_conditions(device: &Tree, path: &Path<'_>, errors: &mut Errors) {
    const MAX_CONDITIONS: usize = 4;
    let fields = ["bindingConditions", "bindingFailureConditions"];
    for field in fields {
        validate_items(device.list(field), MAX_CONDITIONS, &path.field(field), errors, |condition, path, errors| {
            let text = condition.as_str().unwrap_or("");
            errors.invalid_all(path, text, qualified_name(text));
        });
    }
    let [conditions, failures] = fields.map(|field| device.list(field));
    for at in duplicates(conditions, itself) {
        errors.duplicate(&path.field(fields[0]).index(at), &conditions[at]);
    }
    let (known, mut seen): (SmallSet<&str>, SmallSet<&str>) =
        (conditions.iter().map(itself).collect(), SmallSet::new());
    for (at, failure) in failures.iter().enumerate() {
        if !seen.insert(itself(failure)) {
            errors.duplicate(&path.field(fields[1]).index(at), failure);
        }
        if known.contains(&itself(failure)) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&path.field(fields[1]).index(at), failure, detail);
        }
    }
    for (empty, other) in [(0, 1), (1, 0)] {
        let (missing, needed) = (fields[empty], fields[other]);
        if device.list(missing).is_empty() && !device.list(needed).is_empty() {
            let detail = format!("{missing} are required to use {needed}");
            errors.invalid(&path.field(missing), device.at(missing), &detail);
        }
    }
}

/// The client that adds a taint without a time owns the generated time: the field is present from here on.
pub(crate) fn expect_stamp(taint: &mut Tree) {
    taint.set_default("timeAdded", Tree::Null);
}

/// Sets the time of a new taint if the client did not.
pub(crate) fn stamp_taint(taint: &mut Tree, context: &Context<'_>) {
    taint.set_default("timeAdded", api::time::format_seconds(context.now));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_attribute_names() {
        let check = |name: &str, full: usize, plain: usize| {
            for (judge, want) in [
                (validate_full_attribute_name as fn(&str, &Path<'_>, &mut Errors), full),
                (validate_attribute_name, plain),
            ] {
                let mut errors = Errors::new();
                judge(name, &Path::root("n"), &mut errors);
                assert_eq!(errors.len(), want, "{name}");
            }
        };
        check("e.com/a", 0, 0);
        check("a", 1, 0);
        check("/a", 1, 1);
        check("e.com/", 1, 1);
        check("a/b/c", 1, 1);
        check("e.com/1a", 1, 1);
    }
}
