//! Validation of an autoscaler's metrics.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::validate::validate_object_reference;

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// The field of each type, in upstream's order.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const RAW_OR_UTILIZATION: &str = "must set either a target raw value or a target utilization";

pub(super) fn validate(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let metrics = spec.list("metrics");
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(metric, &path.index(index), errors);
    }
    let from_outside = |metric: &Tree| matches!(metric.str("type"), "Object" | "External");
    if spec.int("minReplicas") == Some(0) && !metrics.iter().any(from_outside) {
        let text = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, text);
    }
}

fn validate_metric(metric: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let kind = metric.str("type");
    if kind.is_empty() {
        errors.required(&path.field("type"), "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, &TYPES);
    }
    let present: Vec<&str> = SOURCES.into_iter().map(|(_, key)| key).filter(|key| metric.has(key)).collect();
    if let Some(first) = present.first() {
        validate_source(first, metric.at(first), &path.field(first), errors);
    }
    let expected = SOURCES.into_iter().find(|(name, _)| *name == kind).map_or("", |(_, key)| key);
    if !expected.is_empty() && !metric.has(expected) {
        errors.required(&path.field(expected), "must populate information for the given metric source");
    }
    if present.len() > 1 {
        for key in present.into_iter().filter(|key| *key != expected) {
            errors.forbidden(&path.field(key), "must populate the given metric source only");
        }
    }
}

fn validate_source(key: &str, source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match key {
        "object" => validate_object(source, path, errors),
        "external" => validate_external(source, path, errors),
        "pods" => validate_pods(source, path, errors),
        "resource" => {
            if source.str("name").is_empty() {
                errors.required(&path.field("name"), "must specify a resource name");
            }
            validate_resource_target(source.at("target"), &path.field("target"), errors);
        }
        _ => validate_container_resource(source, path, errors),
    }
}

fn validate_object(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_object_reference(source.at("describedObject"), &path.field("describedObject"), errors);
    validate_identifier(source.at("metric"), &path.field("metric"), errors);
    let (target, path) = (source.at("target"), path.field("target"));
    validate_target(target, &path, errors);
    if !target.has("value") && !target.has("averageValue") {
        errors.required(&path.field("averageValue"), "must set either a target value or averageValue");
    }
}

fn validate_external(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_identifier(source.at("metric"), &path.field("metric"), errors);
    let (target, path) = (source.at("target"), path.field("target"));
    validate_target(target, &path, errors);
    match (target.has("value"), target.has("averageValue")) {
        (false, false) => {
            let text = "must set either a target value for metric or a per-pod target";
            errors.required(&path.field("averageValue"), text);
        }
        (true, true) => {
            let text = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.field("value"), text);
        }
        _ => {}
    }
}

fn validate_pods(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_identifier(source.at("metric"), &path.field("metric"), errors);
    let (target, path) = (source.at("target"), path.field("target"));
    validate_target(target, &path, errors);
    if !target.has("averageValue") {
        errors.required(&path.field("averageValue"), "must specify a positive target averageValue");
    }
}

fn validate_container_resource(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match source.str("name") {
        "" => errors.required(&path.field("name"), "must specify a resource name"),
        name => crate::resources::validate_container_name(name, &path.field("name"), errors),
    }
    match source.str("container") {
        "" => errors.required(&path.field("container"), "must specify a container"),
        name => errors.invalid_all(&path.field("container"), name, validation::dns1123_label(name)),
    }
    validate_resource_target(source.at("target"), &path.field("target"), errors);
}

fn validate_resource_target(target: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_target(target, path, errors);
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => errors.required(&path.field("averageUtilization"), RAW_OR_UTILIZATION),
        (true, true) => {
            let text = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.field("averageValue"), text);
        }
        _ => {}
    }
}

fn validate_target(target: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let kind = target.str("type");
    if kind.is_empty() {
        errors.required(&path.field("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&path.field("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for key in ["value", "averageValue"] {
        // Quantities are canonical here: zero is "0".
        if let Some(text) = target.at(key).as_str()
            && (text == "0" || text.starts_with('-'))
        {
            errors.invalid(&path.field(key), text, "must be positive");
        }
    }
    if let Some(percent) = target.int("averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.field("averageUtilization"), percent, "must be greater than 0");
    }
}

fn validate_identifier(metric: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match metric.str("name") {
        "" => errors.required(&path.field("name"), "must specify a metric name"),
        name => errors.invalid_all(&path.field("name"), name, validation::path_segment_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(metric: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate(&tree! { "metrics" => list![metric] }, &Path::root("metrics"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn sources_match_their_type() {
        check(
            tree! { "type" => "Resource" },
            &["metrics[0].resource: Required value: must populate information for the given metric source"],
        );
        check(
            tree! { "type" => "X" },
            &[
                "metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
            ],
        );
        let target = tree! { "type" => "Utilization", "averageUtilization" => 0, "averageValue" => "1" };
        check(
            tree! { "type" => "Resource", "resource" => tree! { "name" => "cpu", "target" => target } },
            &[
                "metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                "metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
            ],
        );
    }
}
