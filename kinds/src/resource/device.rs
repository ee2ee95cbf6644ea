//! A device of a ResourceSlice: attributes, capacity, taints and nodes.

use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;
use api::{Map, Tree};

use super::rules::{
    duplicates, validate_attribute_name, validate_binding_conditions, validate_items, validate_label, validate_taint,
};
use crate::gojson;
use crate::podspec::affinity::validate_node_selector;

const MAX_ENTRIES: usize = 32;
const MAX_VALUE_BYTES: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_COUNTERS: usize = 32;
const SCALARS: &[&str] = &["bool", "int", "string", "version"];
const LISTS: &[&str] = &["bools", "ints", "strings", "versions"];

/// Devices with these features are larger, so that a slice may have fewer.
pub(crate) fn has_advanced_features(device: &Tree) -> bool {
    let has_list = |attribute: &Tree| LISTS.iter().any(|list| attribute.has(list));
    !device.list("taints").is_empty()
        || !device.list("consumesCounters").is_empty()
        || device.map("attributes").iter().any(|(_, attribute)| has_list(attribute))
}

pub(super) fn validate(device: &Tree, old: Option<&Tree>, per_device: bool, path: &Path<'_>, errors: &mut Errors) {
    validate_label(device.str("name"), &path.field("name"), errors);
    let (attributes, capacity) = (device.map("attributes"), device.map("capacity"));
    let entries = attributes.len() + capacity.len();
    if entries > MAX_ENTRIES {
        let detail = format!("the total number of attributes and capacities must not exceed {MAX_ENTRIES}");
        errors.invalid(path, entries, &detail);
    }
    for (name, attribute) in attributes.iter() {
        let path = path.field("attributes");
        validate_attribute_name(name, &path, errors);
        validate_attribute(attribute, &path.key(name), errors);
    }
    validate_capacity(device, &path.field("capacity"), errors);
    if old.is_none_or(|old| old.at("taints") != device.at("taints")) {
        let taints = device.list("taints");
        validate_items(taints, MAX_TAINTS, &path.field("taints"), errors, |taint, path, errors| {
            validate_taint(taint, None, path, errors);
        });
    }
    validate_consumptions(device, &path.field("consumesCounters"), errors);
    validate_nodes(device, per_device, path, errors);
    validate_binding_conditions(device, path, errors);
}

fn validate_attribute(attribute: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let set = SCALARS.iter().chain(LISTS).filter(|field| attribute.has(field)).count();
    if let Some(text) = attribute.at("string").as_str() {
        validate_text(text, &path.field("string"), errors);
    }
    if let Some(version) = attribute.at("version").as_str() {
        validate_version(version, &path.field("version"), errors);
    }
    for (index, text) in attribute.list("strings").iter().filter_map(Tree::as_str).enumerate() {
        validate_text(text, &path.field("strings").index(index), errors);
    }
    for (index, version) in attribute.list("versions").iter().filter_map(Tree::as_str).enumerate() {
        validate_version(version, &path.field("versions").index(index), errors);
    }
    match set {
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, attribute, "exactly one value must be specified"),
    }
}

fn validate_text(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > MAX_VALUE_BYTES {
        errors.too_long(path, MAX_VALUE_BYTES);
    }
}

fn validate_version(version: &str, path: &Path<'_>, errors: &mut Errors) {
    if !is_semver(version) {
        errors.invalid(path, version, "must be a string compatible with semver.org spec 2.0.0");
    }
    validate_text(version, path, errors);
}

/// `1.2.3-pre.1+build`
fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!numeric(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

/// Request policies are only allowed for devices with multiple allocations.
fn validate_capacity(device: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (name, capacity) in device.map("capacity").iter() {
        validate_attribute_name(name, path, errors);
        if capacity.has("requestPolicy") && !device.bool("allowMultipleAllocations") {
            errors.forbidden(&path.key(name).field("requestPolicy"), "allowMultipleAllocations must be true");
        }
    }
}

fn validate_consumptions(device: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let consumptions = device.list("consumesCounters");
    validate_items(consumptions, MAX_CONSUMPTIONS, path, errors, |consumption, path, errors| {
        validate_label(consumption.str("counterSet"), &path.field("counterSet"), errors);
        validate_counters(consumption.map("counters"), MAX_COUNTERS, &path.field("counters"), errors);
    });
    for at in duplicates(consumptions, |consumption| consumption.str("counterSet")) {
        errors.duplicate(&path.index(at), &consumptions[at]);
    }
}

pub(crate) fn validate_counters(counters: &Map, max: usize, path: &Path<'_>, errors: &mut Errors) {
    if counters.is_empty() {
        return errors.required(path, "");
    }
    if counters.len() > max {
        return errors.too_many(path, counters.len(), max);
    }
    for name in counters.keys() {
        validate_label(name, path, errors);
    }
}

fn validate_nodes(device: &Tree, per_device: bool, path: &Path<'_>, errors: &mut Errors) {
    let fields = [("nodeName", "`nodeName`"), ("nodeSelector", "`nodeSelector`"), ("allNodes", "`allNodes`")];
    let set: Vec<&str> = fields.iter().filter(|(field, _)| device.has(field)).map(|(_, shown)| *shown).collect();
    if !per_device {
        if !set.is_empty() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is \
                 set to true in the ResourceSlice spec";
            errors.invalid(path, gojson::null(), detail);
        }
        return;
    }
    match device.at("nodeName").as_str() {
        Some("") => errors.invalid(&path.field("nodeName"), "", "must not be empty"),
        Some(name) => errors.invalid_all(&path.field("nodeName"), name, dns1123_subdomain(name)),
        None => {}
    }
    if device.has("nodeSelector") {
        validate_node_selector(device.at("nodeSelector"), &path.field("nodeSelector"), errors);
    }
    if device.at("allNodes").as_bool() == Some(false) {
        errors.invalid(&path.field("allNodes"), false, "must be either unset or set to true");
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
         `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => errors.required(path, detail),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", set.join(", ")), detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_semantic_versions() {
        let check = |text: &str, want: bool| assert_eq!(is_semver(text), want, "{text}");
        check("1.2.3", true);
        check("1.2.3-alpha.1+b-1", true);
        check("1.2", false);
        check("01.2.3", false);
        check("1.2.3-01", false);
        check("1.2.3+", false);
    }
}
