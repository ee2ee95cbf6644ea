//! APIService.

use api::field::{Errors, Path};
use api::validation::{dns1035_label, dns1123_subdomain, port_number};
use api::{Tree, time, tree};

use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, column};
use crate::{cells, names, prepare};

pub(crate) static KIND: Kind = Kind {
    storage: "apiregistration.k8s.io/apiservices",
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Service", "string", "", 0),
        column("Available", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    validate_name: names::any,
    set_defaults,
    prepare_create,
    prepare_update: prepare::keep_status,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: prepare::any_status, reset: &["spec"] }),
    unconditional_update: false,
    cells,
    ..Kind::cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice")
};

const SPEC: Path<'static> = Path::root("spec");

/// Local API services are available from the start.
fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    if object.at("spec").has("service") {
        return;
    }
    let condition = tree! {
        "type" => "Available", "status" => "True", "reason" => "Local",
        "message" => "Local APIServices are always available",
        "lastTransitionTime" => time::format_seconds(context.now),
    };
    object.child("status").list_entry("conditions").push(condition);
}

fn set_defaults(object: &mut Tree) {
    if let Some(service) = object.at_mut("spec.service") {
        service.set_default("port", 443);
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_name(object, errors);
    validate_priority(spec, "groupPriorityMinimum", 20_000, errors);
    validate_priority(spec, "versionPriority", 1000, errors);
    let (group, version) = (spec.str("group"), spec.str("version"));
    if !group.is_empty() {
        errors.invalid_all(&SPEC.field("group"), group, dns1123_subdomain(group));
    }
    errors.invalid_all(&SPEC.field("version"), version, dns1035_label(version));
    match spec.get("service") {
        None => validate_local(spec, errors),
        Some(service) => validate_service(service, spec, errors),
    }
}

fn validate_name(object: &Tree, errors: &mut Errors) {
    let name = object.str("metadata.name");
    let required = format!("{}.{}", object.str("spec.version"), object.str("spec.group"));
    if name != required {
        let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
        errors.invalid(&Path::root("metadata.name"), name, &detail);
    }
}

fn validate_priority(spec: &Tree, field: &str, most: i64, errors: &mut Errors) {
    let value = spec.int(field).unwrap_or(0);
    if value <= 0 || value > most {
        errors.invalid(&SPEC.field(field), value, &format!("must be positive and less than {most}"));
    }
}

/// A group version that this server serves itself.
fn validate_local(spec: &Tree, errors: &mut Errors) {
    if spec.has("caBundle") {
        let bytes = api::base64::decode(spec.str("caBundle")).unwrap_or_default().len();
        let path = SPEC.field("caBundle");
        errors.invalid(&path, format!("{bytes} bytes"), "local APIServices may not have a caBundle");
    }
    if spec.bool("insecureSkipTLSVerify") {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        errors.invalid(&SPEC.field("insecureSkipTLSVerify"), true, detail);
    }
}

fn validate_service(service: &Tree, spec: &Tree, errors: &mut Errors) {
    let path = SPEC.field("service");
    for field in ["namespace", "name"] {
        if service.str(field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    let port = service.int("port").unwrap_or(0);
    let messages = port_number(port);
    if !messages.is_empty() {
        errors.invalid(&path.field("port"), port, &format!("port is not valid: {}", messages.join(", ")));
    }
    if spec.bool("insecureSkipTLSVerify") && spec.has("caBundle") {
        let detail = "may not be true if caBundle is present";
        errors.invalid(&SPEC.field("insecureSkipTLSVerify"), true, detail);
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let service = object.at("spec.service");
    let service = match service.is_null() {
        true => "Local".to_string(),
        false => format!("{}/{}", service.str("namespace"), service.str("name")),
    };
    vec![cells::name(object), Tree::from(service), Tree::from(available(object)), cells::age(object, now)]
}

fn available(object: &Tree) -> String {
    let condition = object.list("status.conditions").iter().find(|item| item.str("type") == "Available");
    match condition.map(|condition| (condition.str("status"), condition.str("reason"))) {
        None => "Unknown".to_string(),
        Some(("True", _)) => "True".to_string(),
        Some((status, reason)) => format!("{status} ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn validates_local_and_remote_services() {
        let check = |service: Tree, want: &[&str]| {
            let mut spec =
                tree! { "group" => "e.com", "version" => "v1", "groupPriorityMinimum" => 1, "versionPriority" => 1 };
            spec.set("service", service);
            let mut errors = Errors::new();
            let object = tree! { "metadata" => tree! { "name" => "v1.e.com" }, "spec" => spec };
            validate(&object, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        let service = tree! { "name" => "s", "namespace" => "n", "port" => 443 };
        check(service, &[]);
        check(tree! { "name" => "s", "port" => 443 }, &["spec.service.namespace: Required value"]);
    }
}
