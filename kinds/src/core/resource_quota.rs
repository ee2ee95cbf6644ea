//! ResourceQuota.

use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::{Map, Tree};

use crate::kind::{Kind, Lifecycle, StatusRules, Subresource, Verb, column};
use crate::{cells, prepare, resources};

/// ResourceQuota.
pub static KIND: Kind = Kind {
    short_names: &["quota"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Request", "string", "", 0),
        column("Limit", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults,
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate_status_update, reset: &["spec"] }),
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
};

const SPEC: Path<'static> = Path::root("spec");

/// Requests that may exceed the limits of the same resource, on create.
fn warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    let hard = object.map("spec.hard");
    let names = ["cpu", "memory", "storage", "ephemeral-storage"].into_iter().filter(|_| old.is_none());
    names.filter_map(|name| request_warning(hard, name)).collect()
}

fn request_warning(hard: &Map, name: &str) -> Option<String> {
    let (requests, limits) = (format!("requests.{name}"), format!("limits.{name}"));
    // CPU and memory have a short name for their requests.
    let short = matches!(name, "cpu" | "memory");
    let key = if short && !hard.contains(&requests) { name } else { &requests };
    let (request, limit) = (hard.get(key)?, hard.get(&limits)?);
    (resources::read(request) > resources::read(limit)).then(|| {
        let (request, limit) = (request.as_str().unwrap_or(""), limit.as_str().unwrap_or(""));
        format!("ResourceQuota {key} ({request}) should be less than {limits} ({limit})")
    })
}
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes without values.
const EXISTS_ONLY: &[&str] =
    &["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];
const COMPUTE: &[&str] = &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

fn set_defaults(object: &mut Tree) {
    resources::round_up(object.child("spec"), "hard");
    if object.has("status") {
        resources::round_up(object.child("status"), "hard");
        resources::round_up(object.child("status"), "used");
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    validate_spec(object.at("spec"), errors);
    validate_status(object, errors);
}

fn validate_spec(spec: &Tree, errors: &mut Errors) {
    validate_hard(spec.map("hard"), &SPEC.field("hard"), errors);
    validate_scopes(spec, errors);
    validate_scope_selector(spec, errors);
}

fn validate_hard(hard: &Map, path: &Path<'_>, errors: &mut Errors) {
    for (name, quantity) in hard.iter() {
        resources::validate_quota_name(name, &path.key(name), errors);
        resources::validate_quantity(name, quantity, &path.key(name), errors);
    }
}

fn validate_status(object: &Tree, errors: &mut Errors) {
    validate_hard(object.map("status.hard"), &Path::root("status.hard"), errors);
    validate_hard(object.map("status.used"), &Path::root("status.used"), errors);
}

/// Each error prints all scopes, so it is reported once.
fn validate_scopes(spec: &Tree, errors: &mut Errors) {
    let path = SPEC.field("scopes");
    let shown = spec.at("scopes");
    let scopes: Vec<&str> = spec.list("scopes").iter().filter_map(Tree::as_str).collect();
    if scopes.iter().any(|scope| !SCOPES.contains(scope)) {
        errors.invalid(&path, shown, "unsupported scope");
    }
    if SCOPES.iter().any(|scope| scopes.contains(scope) && is_misapplied(scope, spec)) {
        errors.invalid(&path, shown, "unsupported scope applied to resource");
    }
    validate_conflicts(&scopes, shown, &path, errors);
}

/// Whether the quota has a standard resource that the scope cannot restrict.
fn is_misapplied(scope: &str, spec: &Tree) -> bool {
    spec.map("hard").keys().any(|name| resources::is_standard_for_quota(name) && !applies(scope, name))
}

fn applies(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => COMPUTE.contains(&name),
    }
}

fn validate_conflicts(scopes: &[&str], shown: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, shown, "conflicting scopes");
        }
    }
}

fn validate_scope_selector(spec: &Tree, errors: &mut Errors) {
    let selector = spec.at("scopeSelector");
    let path = SPEC.field("scopeSelector.matchExpressions");
    let mut scopes = Vec::new();
    for requirement in selector.list("matchExpressions") {
        let scope = requirement.str("scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.field("scopeName"), scope, "unsupported scope");
        }
        validate_operator(requirement, &path, errors);
        scopes.push(scope);
    }
    if SCOPES.iter().any(|scope| scopes.contains(scope) && is_misapplied(scope, spec)) {
        errors.invalid(&path, selector, "unsupported scope applied to resource");
    }
    validate_conflicts(&scopes, spec.at("scopes"), &path, errors);
}

fn validate_operator(requirement: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let operator = requirement.str("operator");
    if EXISTS_ONLY.contains(&requirement.str("scopeName")) && operator != "Exists" {
        let detail = "must be 'Exist' only operator when scope is any of ResourceQuotaScopeTerminating, \
             ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid(&path.field("operator"), operator, detail);
    }
    let empty = requirement.list("values").is_empty();
    match operator {
        "In" | "NotIn" if empty => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.required(&path.field("values"), detail);
        }
        "Exists" | "DoesNotExist" if !empty => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&path.field("values"), requirement.at("values"), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.invalid(&path.field("operator"), operator, "not a valid selector operator"),
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate_spec(object.at("spec"), errors);
    let scopes = |object: &'_ Tree| -> BTreeSet<String> {
        object.list("spec.scopes").iter().filter_map(Tree::as_str).map(str::to_string).collect()
    };
    if scopes(object) != scopes(old) {
        errors.invalid(&SPEC.field("scopes"), object.at("spec.scopes"), "field is immutable");
    }
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    validate_status(object, errors);
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in object.map("status.hard").iter() {
        let used = object.map("status.used").get(name).and_then(Tree::as_str).unwrap_or("0");
        let column = if name.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{name}: {used}/{}", hard.as_str().unwrap_or("0")));
    }
    vec![cells::name(object), Tree::from(requests.join(", ")), Tree::from(limits.join(", ")), cells::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn scopes_match_resources() {
        let check = |scopes: Tree, hard: Tree, want: &[&str]| {
            let mut errors = Errors::new();
            validate(&tree! { "spec" => tree! { "scopes" => scopes, "hard" => hard } }, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        check(list!["Terminating"], tree! { "pods" => "1" }, &[]);
        check(
            list!["Terminating"],
            tree! { "services" => "1" },
            &["spec.scopes: Invalid value: [\"Terminating\"]: unsupported scope applied to resource"],
        );
        check(
            list!["BestEffort", "NotBestEffort"],
            tree! {},
            &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
        );
    }

    #[test]
    fn limits_have_their_own_cell() {
        let status =
            tree! { "hard" => tree! { "limits.cpu" => "2", "pods" => "3" }, "used" => tree! { "pods" => "1" } };
        let cells = cells(&tree! { "status" => status }, 0);
        assert_eq!(cells[1..3], [Tree::from("pods: 1/3"), Tree::from("limits.cpu: 0/2")]);
    }
}
