//! FlowSchema.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{dns1123_label, dns1123_subdomain};

use super::rules;
use crate::gojson::{self, EMPTY, field};
use crate::kind::{Kind, StatusRules, Subresource, Verb, bump_generation, column};
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("PriorityLevel", "string", "", 0),
        column("MatchingPrecedence", "string", "", 0),
        column("DistinguisherMethod", "string", "", 0),
        column("Age", "string", "", 0),
        column("MissingPL", "string", "", 0),
    ],
    set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: |object, old, context| {
        prepare::keep_status(object, old, context);
        bump_generation(object, old, &["spec"]);
    },
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: |object, _, errors| rules::validate_status(object, errors),
        reset: &["spec", "metadata"],
    }),
    cells,
    ..Kind::cluster("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", "flowschema")
};

const MAX_PRECEDENCE: i64 = 10_000;
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    if spec.int("matchingPrecedence").unwrap_or(0) == 0 {
        spec.set("matchingPrecedence", 1000);
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let (spec, path) = (object.at("spec"), Path::root("spec"));
    validate_precedence(object, errors);
    let method = spec.at("distinguisherMethod");
    if !method.is_null() && !matches!(method.str("type"), "ByNamespace" | "ByUser") {
        let shown = gojson::value(method, &[field("type", "Type", EMPTY)]);
        errors.not_supported(&path.field("distinguisherMethod.type"), shown, &["ByNamespace", "ByUser"]);
    }
    let level = path.field("priorityLevelConfiguration.name");
    match spec.str("priorityLevelConfiguration.name") {
        "" => errors.required(&level, "must reference a priority level"),
        name => errors.invalid_all(&level, name, dns1123_subdomain(name)),
    }
    for (index, rule) in spec.list("rules").iter().enumerate() {
        validate_rule(rule, &path.field("rules").index(index), errors);
    }
    rules::validate_status(object, errors);
}

fn validate_precedence(object: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.matchingPrecedence");
    let precedence = object.int("spec.matchingPrecedence").unwrap_or(0);
    if precedence <= 0 {
        errors.invalid(&path, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&path, precedence, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && object.str("metadata.name") != "exempt" {
        errors.invalid(&path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn validate_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let subjects = rule.list("subjects");
    if subjects.is_empty() {
        errors.required(&path.field("subjects"), "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &path.field("subjects").index(index), errors);
    }
    let (resources, urls) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for (index, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &path.field("resourceRules").index(index), errors);
    }
    for (index, rule) in urls.iter().enumerate() {
        validate_url_rule(rule, &path.field("nonResourceRules").index(index), errors);
    }
}

/// The kinds of subjects and the field that holds each.
const SUBJECTS: &[(&str, &str)] = &[("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn validate_subject(subject: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let kind = subject.str("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    match subject.get(own) {
        None => errors.required(&path.field(own), &format!("{own} is required when subject kind is '{kind}'")),
        Some(value) if *own == "serviceAccount" => validate_account(value, &path.field(own), errors),
        Some(value) if value.str("name").is_empty() => errors.required(&path.field(own).field("name"), ""),
        Some(_) => {}
    }
    for (other, field) in [SUBJECTS[0], SUBJECTS[1], SUBJECTS[2]] {
        if other != kind && subject.has(field) {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.field(field), &detail);
        }
    }
}

fn validate_account(account: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match account.str("name") {
        "" => errors.required(&path.field("name"), ""),
        "*" => {}
        name => errors.invalid_all(&path.field("name"), name, dns1123_subdomain(name)),
    }
    match account.str("namespace") {
        "" => errors.required(&path.field("namespace"), "must specify namespace for service account"),
        namespace => errors.invalid_all(&path.field("namespace"), namespace, dns1123_label(namespace)),
    }
}

fn validate_resource_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let (values, path) = (rule.at(field), path.field(field));
        if rule.list(field).is_empty() {
            errors.required(&path, &format!("resource rules must supply at least one {one}"));
        } else if is_star_among_others(rule.list(field)) {
            errors.invalid(&path, values, &format!("if '*' is present, must not specify other {many}"));
        }
    }
    let (namespaces, path) = (rule.list("namespaces"), path.field("namespaces"));
    if namespaces.is_empty() && !rule.bool("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&path, detail);
    } else if has_star(namespaces) {
        if namespaces.len() > 1 {
            errors.invalid(&path, rule.at("namespaces"), "if '*' is present, must not specify other namespaces");
        }
    } else {
        for (index, namespace) in namespaces.iter().filter_map(Tree::as_str).enumerate() {
            for message in dns1123_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {message}");
                errors.invalid(&path.index(index), namespace, &detail);
            }
        }
    }
}

fn validate_verbs(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (verbs, path) = (rule.list("verbs"), path.field("verbs"));
    if verbs.is_empty() {
        errors.required(&path, "verbs must contain at least one value");
    } else if is_star_among_others(verbs) {
        errors.invalid(&path, rule.at("verbs"), "if '*' is present, must not specify other verbs");
    } else if !has_star(verbs) && verbs.iter().any(|verb| !VERBS.contains(&verb.as_str().unwrap_or(""))) {
        errors.not_supported(&path, rule.at("verbs"), VERBS);
    }
}

fn validate_url_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, path, errors);
    let (urls, path) = (rule.list("nonResourceURLs"), path.field("nonResourceURLs"));
    if urls.is_empty() {
        errors.required(&path, "nonResourceURLs must contain at least one value");
    } else if is_star_among_others(urls) {
        let detail = "if '*' is present, must not specify other non-resource URLs";
        errors.invalid(&path, rule.at("nonResourceURLs"), detail);
    } else if !has_star(urls) {
        for (index, url) in urls.iter().filter_map(Tree::as_str).enumerate() {
            validate_url(url, &path.index(index), errors);
        }
    }
}

fn validate_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    let problem = match url {
        "" => "must not be empty",
        "/" => return,
        url if !url.starts_with('/') => "must start with slash",
        url if url.contains(' ') => "must not contain white-space",
        url if url.contains("//") => "must not contain double slash",
        url if url.trim_end_matches('*').contains('*') || (url.contains('*') && !url.ends_with("/*")) => {
            "wildcard can only do suffix matching"
        }
        _ => return,
    };
    errors.invalid(path, url, problem);
}

fn has_star(values: &[Tree]) -> bool {
    values.iter().any(|value| value.as_str() == Some("*"))
}

fn is_star_among_others(values: &[Tree]) -> bool {
    values.len() > 1 && has_star(values)
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let dangling = object.list("status.conditions").iter().find(|condition| condition.str("type") == "Dangling");
    vec![
        cells::name(object),
        Tree::from(object.str("spec.priorityLevelConfiguration.name")),
        Tree::Int(object.int("spec.matchingPrecedence").unwrap_or(0)),
        cells::text_or(object, "spec.distinguisherMethod.type", "<none>"),
        cells::age(object, now),
        Tree::from(dangling.map_or("?", |condition| condition.str("status"))),
    ]
}
