//! The device requests of a claim, also in templates.

use api::Tree;
use api::field::{Errors, Path, Value};
use api::schema::type_named;
use api::validation::dns1123_subdomain;

use super::rules::{
    MAX_CONFIGS, duplicates, itself, validate_configuration, validate_full_attribute_name, validate_items,
    validate_label, validate_tolerations,
};
use super::selectors;

pub(crate) const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const BAD_REFERENCE: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Defaults of requests: one device each.
pub(super) fn set_defaults(spec: &mut Tree) {
    for request in spec.list_mut("devices.requests") {
        if let Some(exactly) = request.get_mut("exactly") {
            set_request_defaults(exactly);
        }
        request.list_mut("firstAvailable").iter_mut().for_each(set_request_defaults);
    }
}

fn set_request_defaults(request: &mut Tree) {
    if request.str("allocationMode").is_empty() {
        request.set("allocationMode", "ExactCount");
    }
    if request.str("allocationMode") == "ExactCount" && request.int("count").unwrap_or(0) == 0 {
        request.set("count", 1);
    }
    for toleration in request.list_mut("tolerations") {
        if toleration.str("operator").is_empty() {
            toleration.set("operator", "Equal");
        }
    }
}

pub(super) fn validate(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (devices, path) = (spec.at("devices"), path.field("devices"));
    let requests = devices.list("requests");
    validate_items(requests, MAX_REQUESTS, &path.field("requests"), errors, validate_request);
    if requests.len() > MAX_REQUESTS {
        // Every reference would be searched in all of them.
        return;
    }
    for at in duplicates(requests, |request| request.str("name")) {
        errors.duplicate(&path.field("requests").index(at), shown_request(&requests[at]));
    }
    let constraints = path.field("constraints");
    validate_items(devices.list("constraints"), MAX_CONSTRAINTS, &constraints, errors, |constraint, path, errors| {
        validate_references(constraint.list("requests"), requests, &path.field("requests"), errors);
        validate_constraint(constraint, path, errors);
    });
    let configs = path.field("config");
    validate_items(devices.list("config"), MAX_CONFIGS, &configs, errors, |config, path, errors| {
        validate_references(config.list("requests"), requests, &path.field("requests"), errors);
        validate_configuration(config, path, errors);
    });
}

fn shown_request(request: &Tree) -> Value {
    match type_named("resource/v1", "DeviceRequest") {
        Some(ty) => Value::typed(request, ty),
        None => Value::from(request),
    }
}

fn validate_request(request: &Tree, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    validate_label(request.str("name"), &path.field("name"), errors);
    let alternatives = request.list("firstAvailable");
    match (request.get("exactly"), alternatives.is_empty()) {
        (None, true) => errors.required(path, ONE),
        (Some(_), false) => {
            errors.invalid(path, crate::gojson::null(), &format!("{ONE}, but multiple fields are set"));
        }
        (Some(exactly), true) => validate_devices(exactly, &path.field("exactly"), errors),
        (None, false) => {
            let path = path.field("firstAvailable");
            validate_items(alternatives, MAX_ALTERNATIVES, &path, errors, |request, path, errors| {
                validate_label(request.str("name"), &path.field("name"), errors);
                validate_devices(request, path, errors);
            });
            for at in duplicates(alternatives, |request| request.str("name")) {
                errors.duplicate(&path.index(at), &alternatives[at]);
            }
        }
    }
}

fn validate_devices(request: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let class = path.field("deviceClassName");
    match request.str("deviceClassName") {
        "" => errors.required(&class, ""),
        name => errors.invalid_all(&class, name, dns1123_subdomain(name)),
    }
    selectors::validate(request.list("selectors"), None, &path.field("selectors"), errors);
    let count = request.int("count").unwrap_or(0);
    match request.str("allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.invalid(&path.field("count"), count, detail);
        }
        "All" => {}
        "ExactCount" if count <= 0 => errors.invalid(&path.field("count"), count, "must be greater than zero"),
        "ExactCount" => {}
        mode => errors.not_supported(&path.field("allocationMode"), mode, &["All", "ExactCount"]),
    }
    validate_tolerations(request.list("tolerations"), &path.field("tolerations"), errors);
}

fn validate_constraint(constraint: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for field in ["matchAttribute", "distinctAttribute"] {
        if let Some(name) = constraint.at(field).as_str() {
            return validate_full_attribute_name(name, &path.field(field), errors);
        }
    }
    let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
    errors.required(path, detail);
}

/// A list of request names without duplicates.
pub(crate) fn validate_references(names: &[Tree], requests: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    validate_items(names, MAX_REQUESTS, path, errors, |name, path, errors| {
        validate_reference(name.as_str().unwrap_or(""), requests, path, errors);
    });
    for at in duplicates(names, itself) {
        errors.duplicate(&path.index(at), &names[at]);
    }
}

pub(crate) fn validate_reference(name: &str, requests: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        return errors.invalid(path, name, BAD_REFERENCE);
    }
    for part in &parts {
        errors.invalid_all(path, part, api::validation::dns1123_label(part));
    }
    let request = requests.iter().find(|request| request.str("name") == parts[0]);
    let found = request.is_some_and(|request| match parts.get(1) {
        Some(sub) => request.list("firstAvailable").iter().any(|request| request.str("name") == *sub),
        None => true,
    });
    if !found {
        errors.invalid(path, name, BAD_REFERENCE);
    }
}

/// Whether a device is in the results of an allocation.
pub(crate) fn is_allocated(device: &Tree, allocation: &Tree) -> bool {
    let keys = ["driver", "pool", "device", "shareID"];
    let same = |result: &Tree| keys.iter().all(|key| result.str(key) == device.str(key));
    allocation.list("devices.results").iter().take(MAX_REQUESTS).any(same)
}
