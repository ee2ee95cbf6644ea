//! Environment variables and their sources; also field references of downward API volumes.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::check;
use super::spec::PodContext;

pub(super) fn validate(container: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let env = path.field("env");
    for (index, variable) in container.list("env").iter().enumerate() {
        validate_variable(variable, scope, &env.index(index), errors);
    }
    let env_from = path.field("envFrom");
    for (index, source) in container.list("envFrom").iter().enumerate() {
        validate_env_from(source, &env_from, index, errors);
    }
}

fn validate_variable(variable: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let name = variable.str("name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    } else {
        errors.invalid_all(&path.field("name"), name, validation::env_var_name(name));
    }
    if let Some(source) = variable.get("valueFrom") {
        validate_value_from(source, variable.str("value"), scope, &path.field("valueFrom"), errors);
    }
}

fn validate_value_from(source: &Tree, value: &str, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    if let Some(reference) = source.get("fieldRef") {
        sources += 1;
        validate_field_ref(reference, ENV_FIELDS, &path.field("fieldRef"), errors);
    }
    if let Some(reference) = source.get("resourceFieldRef") {
        sources += 1;
        validate_resource_field_ref(reference, false, &path.field("resourceFieldRef"), errors);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = source.get(key) {
            sources += 1;
            validate_key_ref(reference, &path.field(key), errors);
        }
    }
    if let Some(reference) = source.get("fileKeyRef") {
        sources += 1;
        validate_file_key_ref(reference, scope, &path.field("fileKeyRef"), errors);
    }
    if sources == 0 {
        errors.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !value.is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(crate) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The supported field paths, of which each use allows some.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.host",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

pub(crate) fn validate_field_ref(reference: &Tree, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (version, field) = (reference.str("apiVersion"), reference.str("fieldPath"));
    for (key, value) in [("apiVersion", version), ("fieldPath", field)] {
        if value.is_empty() {
            return errors.required(&path.field(key), "");
        }
    }
    let at = path.field("fieldPath");
    if version != "v1" {
        let text = format!("error converting fieldPath: unsupported pod version: {version}");
        return errors.invalid(&at, field, &text);
    }
    if let Some((base, subscript)) = split_subscript(field) {
        return validate_subscript(field, base, subscript, path, errors);
    }
    if !KNOWN_FIELDS.contains(&field) {
        let text = format!("error converting fieldPath: field label not supported: {field}");
        return errors.invalid(&at, field, &text);
    }
    // A renamed field is validated by its current name.
    let field = if field == "spec.host" { "spec.nodeName" } else { field };
    if !allowed.contains(&field) {
        errors.not_supported(&at, field, allowed);
    }
}

/// `metadata.labels['app']` split into its two parts.
fn split_subscript(field: &str) -> Option<(&str, &str)> {
    let inner = field.strip_suffix("']")?;
    inner.split_once("['").filter(|(base, _)| !base.is_empty())
}

fn validate_subscript(field: &str, base: &str, subscript: &str, path: &Path<'_>, errors: &mut Errors) {
    match base {
        "metadata.labels" => check::qualified_name(subscript, path, errors),
        "metadata.annotations" => check::qualified_name(&subscript.to_lowercase(), path, errors),
        _ => {
            let text = format!("error converting fieldPath: field label does not support subscript: {field}");
            errors.invalid(&path.field("fieldPath"), field, &text);
        }
    }
}

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(crate) fn validate_resource_field_ref(reference: &Tree, volume: bool, path: &Path<'_>, errors: &mut Errors) {
    let resource = reference.str("resource");
    if volume && reference.str("containerName").is_empty() {
        errors.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.field("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !names_huge_pages(resource) {
        errors.not_supported(&path.field("resource"), resource, RESOURCE_FIELDS);
    }
    validate_divisor(resource, reference.str("divisor"), path, errors);
}

fn names_huge_pages(resource: &str) -> bool {
    resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-")
}

const BYTE_DIVISORS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

fn validate_divisor(resource: &str, divisor: &str, path: &Path<'_>, errors: &mut Errors) {
    if divisor.is_empty() || divisor == "0" {
        return;
    }
    let bytes = |name: &str| {
        (
            BYTE_DIVISORS,
            format!("only divisor's values {} are supported with the {name} resource", BYTE_DIVISORS.join(", ")),
        )
    };
    let (allowed, text): (&[&str], String) = match resource {
        "limits.cpu" | "requests.cpu" => {
            (&["1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource".to_string())
        }
        "limits.memory" | "requests.memory" => bytes("memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => bytes("local ephemeral storage"),
        resource if names_huge_pages(resource) => bytes("hugepages"),
        _ => return,
    };
    if !allowed.contains(&divisor) {
        errors.invalid(&path.field("divisor"), resource, &text);
    }
}

fn validate_key_ref(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::dns_subdomain(reference.str("name"), &path.field("name"), errors);
    let key = reference.str("key");
    if key.is_empty() {
        errors.required(&path.field("key"), "");
    } else {
        errors.invalid_all(&path.field("key"), key, validation::config_map_key(key));
    }
}

/// A variable may come from a file that an earlier container wrote to an emptyDir.
fn validate_file_key_ref(reference: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let volume = reference.str("volumeName");
    if volume.is_empty() {
        errors.required(&path.field("volumeName"), "");
    } else {
        match scope.volume(volume) {
            None => errors.not_found(&path.field("volumeName"), volume),
            Some(source) if !source.has("emptyDir") => {
                errors.invalid(&path.field("volumeName"), volume, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
    let file = reference.str("path");
    if file.is_empty() {
        errors.required(&path.field("path"), "");
    } else {
        check::local_non_reserved(file, &path.field("path"), errors);
    }
    let key = reference.str("key");
    if key.is_empty() {
        errors.required(&path.field("key"), "");
    } else {
        errors.invalid_all(&path.field("key"), key, validation::env_var_name(key));
    }
}

/// Some errors have the path of the whole list, as in upstream.
fn validate_env_from(source: &Tree, list: &Path<'_>, index: usize, errors: &mut Errors) {
    let path = list.index(index);
    let prefix = source.str("prefix");
    if !prefix.is_empty() {
        errors.invalid_all(&path.field("prefix"), prefix, validation::env_var_name(prefix));
    }
    let mut sources = 0;
    for key in ["configMapRef", "secretRef"] {
        if let Some(reference) = source.get(key) {
            sources += 1;
            validate_env_source(reference, &path.field(key), errors);
        }
    }
    match sources {
        0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
    }
}

fn validate_env_source(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let name = reference.str("name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    } else {
        errors.invalid_all(&path.field("name"), name, crate::names::dns_subdomain(name, true));
    }
}
