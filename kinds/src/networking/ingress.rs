//! Ingress.

use api::field::{Errors, Path, Value};
use api::{Tree, validation};

use crate::cells;
use crate::core::service;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::{checks, strategy};

const SPEC: Path<'static> = Path::root("spec");
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(crate) static KIND: Kind = Kind {
    short_names: &["ing"],
    storage: "ingress",
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate,
    validate_update,
    warnings,
    status_warnings: service::load_balancer_warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Class", "string", "", 0),
        column("Hosts", "string", "", 0),
        column("Address", "string", "", 0),
        column("Ports", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
};

/// Invalid values that a stored object may keep.
#[derive(Default)]
struct ToleratedValues {
    secret_names: bool,
    wildcard_rules: bool,
}

fn validate(ingress: &Tree, errors: &mut Errors) {
    validate_spec(ingress.at("spec"), &ToleratedValues::default(), errors);
    let annotation = ingress.map("metadata.annotations").get(CLASS_ANNOTATION).and_then(Tree::as_str);
    let class = ingress.at("spec.ingressClassName").as_str();
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let root = Path::root("annotations");
        let text = "must match `ingressClassName` when both are specified";
        errors.invalid(&root.field(CLASS_ANNOTATION), annotation, text);
    }
}

fn validate_update(ingress: &Tree, old: &Tree, errors: &mut Errors) {
    let bad_secret = |tls: &Tree| !tls_secret_messages(tls).is_empty();
    let bad_rule = |rule: &Tree| {
        let mut errors = Errors::new();
        validate_http(rule.at("http"), &SPEC, &mut errors);
        rule.str("host").contains('*') && !errors.is_empty()
    };
    let allowed = ToleratedValues {
        secret_names: old.list("spec.tls").iter().any(bad_secret),
        wildcard_rules: old.list("spec.rules").iter().any(bad_rule),
    };
    validate_spec(ingress.at("spec"), &allowed, errors);
}

fn validate_spec(spec: &Tree, allowed: &ToleratedValues, errors: &mut Errors) {
    if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
        errors.invalid(&SPEC, Value::raw("null"), "either `defaultBackend` or `rules` must be specified");
    }
    if spec.has("defaultBackend") {
        validate_backend(spec.at("defaultBackend"), &SPEC.field("defaultBackend"), errors);
    }
    for (index, rule) in spec.list("rules").iter().enumerate() {
        validate_rule(rule, allowed, &SPEC.field("rules").index(index), errors);
    }
    for (index, tls) in spec.list("tls").iter().enumerate() {
        validate_tls(tls, allowed, &SPEC.field("tls").index(index), errors);
    }
    if let Some(class) = spec.at("ingressClassName").as_str() {
        errors.invalid_all(&SPEC.field("ingressClassName"), class, validation::dns1123_subdomain(class));
    }
}

fn validate_rule(rule: &Tree, allowed: &ToleratedValues, path: &Path<'_>, errors: &mut Errors) {
    let host = rule.str("host");
    if !host.is_empty() {
        if validation::parse_ip(host).is_some() {
            errors.invalid(&path.field("host"), host, "must be a DNS name, not an IP address");
        }
        errors.invalid_all(&path.field("host"), host, host_messages(host));
    }
    if rule.has("http") && !(host.contains('*') && allowed.wildcard_rules) {
        validate_http(rule.at("http"), &path.field("http"), errors);
    }
}

fn host_messages(host: &str) -> Vec<String> {
    if host.contains('*') { validation::wildcard_dns1123_subdomain(host) } else { validation::dns1123_subdomain(host) }
}

fn validate_tls(tls: &Tree, allowed: &ToleratedValues, path: &Path<'_>, errors: &mut Errors) {
    for (index, host) in tls.list("hosts").iter().enumerate() {
        let host = host.as_str().unwrap_or("");
        errors.invalid_all(&path.field("hosts").index(index), host, host_messages(host));
    }
    if !allowed.secret_names {
        errors.invalid_all(&path.field("secretName"), tls.str("secretName"), tls_secret_messages(tls));
    }
}

fn tls_secret_messages(tls: &Tree) -> Vec<String> {
    match tls.str("secretName") {
        "" => Vec::new(),
        name => validation::dns1123_subdomain(name),
    }
}

fn validate_http(http: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if http.is_null() {
        return;
    }
    if http.list("paths").is_empty() {
        errors.required(&path.field("paths"), "");
    }
    for (index, item) in http.list("paths").iter().enumerate() {
        validate_path(item, &path.field("paths").index(index), errors);
    }
}

fn validate_path(item: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let text = item.str("path");
    match item.at("pathType").as_str() {
        None => return errors.required(&path.field("pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => validate_matched_path(text, &path.field("path"), errors),
        Some("ImplementationSpecific") if !text.is_empty() && !text.starts_with('/') => {
            errors.invalid(&path.field("path"), text, "must be an absolute path");
        }
        Some("ImplementationSpecific") => {}
        Some(other) => {
            errors.not_supported(&path.field("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    validate_backend(item.at("backend"), &path.field("backend"), errors);
}

fn validate_matched_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if !text.starts_with('/') {
        errors.invalid(path, text, "must be an absolute path");
    }
    for sequence in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|sequence| text.contains(sequence)) {
        errors.invalid(path, text, &format!("must not contain '{sequence}'"));
    }
    for suffix in ["/..", "/."].into_iter().filter(|suffix| text.ends_with(suffix)) {
        errors.invalid(path, text, &format!("cannot end with '{suffix}'"));
    }
}

fn validate_backend(backend: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => validate_reference(backend.at("resource"), &path.field("resource"), errors),
        (false, true) => validate_service_backend(backend.at("service"), path, errors),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_service_backend(service: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let service_path = path.field("service");
    match service.str("name") {
        "" => errors.required(&service_path.field("name"), ""),
        name => errors.invalid_all(&service_path.field("name"), name, validation::dns1123_label(name)),
    }
    let (name, number) = (service.str("port.name"), service.int("port.number").unwrap_or(0));
    let port_path = service_path.field("port");
    match (name, number) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => checks::port_number(number, &port_path.field("number"), errors),
        (name, 0) => errors.invalid_all(&port_path.field("name"), name, validation::port_name(name)),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn validate_reference(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = reference.at("apiGroup").as_str() {
        errors.invalid_all(&path.field("apiGroup"), group, validation::dns1123_subdomain(group));
    }
    validate_reference_names(reference, &["kind", "name"], path, errors);
}

/// Each key must be set and be a valid path segment.
pub(super) fn validate_reference_names(reference: &Tree, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        match reference.str(key) {
            "" => errors.required(&path.field(key), ""),
            text => errors.invalid_all(&path.field(key), text, validation::path_segment_name(text)),
        }
    }
}

fn validate_status(ingress: &Tree, old: &Tree, errors: &mut Errors) {
    let stored = old.list("status.loadBalancer.ingress").iter().map(|ingress| ingress.str("ip")).collect();
    let status = Path::root("status");
    let balancer = status.field("loadBalancer");
    let path = balancer.field("ingress");
    for (index, item) in ingress.list("status.loadBalancer.ingress").iter().enumerate() {
        if !item.str("ip").is_empty() {
            checks::ip(item.str("ip"), &stored, &path.index(index).field("ip"), errors);
        }
        service::validate_ingress_hostname(item, &path.index(index), errors);
    }
}

fn warnings(ingress: &Tree, old: Option<&Tree>) -> Vec<String> {
    let has = |ingress: &Tree| ingress.map("metadata.annotations").contains(CLASS_ANNOTATION);
    if old.is_none() && has(ingress) && !ingress.at("spec").has("ingressClassName") {
        let text = format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead");
        return vec![text];
    }
    Vec::new()
}

fn row(ingress: &Tree, now: i64) -> Vec<Tree> {
    let addresses = service::load_balancer_addresses(ingress.list("status.loadBalancer.ingress"));
    let ports = if ingress.list("spec.tls").is_empty() { "80" } else { "80, 443" };
    vec![
        cells::name(ingress),
        Tree::from(ingress.at("spec.ingressClassName").as_str().unwrap_or("<none>")),
        Tree::from(hosts(ingress.list("spec.rules"))),
        Tree::from(addresses.join(",")),
        Tree::from(ports),
        cells::age(ingress, now),
    ]
}

/// The first three; `*` for all hosts.
fn hosts(rules: &[Tree]) -> String {
    const SHOWN: usize = 3;
    let mut list: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= list.len() == SHOWN;
        if !more && !rule.str("host").is_empty() {
            list.push(rule.str("host"));
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".to_string(),
        (false, false) => list.join(","),
        (false, true) => format!("{} + {} more...", list.join(","), rules.len() - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(spec: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate(&tree! { "spec" => spec }, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    fn rule(path: &str, backend: Tree) -> Tree {
        let path = tree! { "path" => path, "pathType" => "Prefix", "backend" => backend };
        tree! { "rules" => list![tree! { "http" => tree! { "paths" => list![path] } }] }
    }

    #[test]
    fn paths_and_backends() {
        let backend = || tree! { "service" => tree! { "name" => "s", "port" => tree! { "number" => 80 } } };
        check(rule("/", backend()), &[]);
        check(tree! {}, &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]);
        check(
            rule("a//b", backend()),
            &[
                "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must be an absolute path",
                "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must not contain '//'",
            ],
        );
        check(
            rule("/", tree! {}),
            &["spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required"],
        );
    }

    #[test]
    fn prints_three_hosts() {
        let rules: Vec<Tree> = ["a", "b", "c", "d"].iter().map(|host| tree! { "host" => *host }).collect();
        assert_eq!(hosts(&rules), "a,b,c + 1 more...");
        assert_eq!(hosts(&[tree! {}]), "*");
    }
}
