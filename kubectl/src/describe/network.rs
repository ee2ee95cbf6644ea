//! Services and what is behind and before them.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;

use super::pod::optional;
use super::related::RelatedError;
use super::values::{format_labels, host_port, int, is_set, joined, or_none, text, text_or, texts};
use super::writer::{Writer, put};

fn head(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    metadata(w, object);
}

fn metadata(w: &mut Writer, object: &Tree) {
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
}

pub(super) fn service(w: &mut Writer, object: &Tree, slices: &[Tree]) {
    head(w, object);
    let spec = object.at("spec");
    w.field("Selector", format_labels(spec.map("selector")));
    w.field("Type", spec.str("type"));
    optional(w, spec, &[("IP Family Policy", "ipFamilyPolicy")]);
    w.field("IP Families", or_none(joined(spec, "ipFamilies", ",")));
    w.field("IP", spec.str("clusterIP"));
    w.field("IPs", or_none(joined(spec, "clusterIPs", ",")));
    if !spec.list("externalIPs").is_empty() {
        w.field("External IPs", joined(spec, "externalIPs", ","));
    }
    optional(w, spec, &[("Desired LoadBalancer IP", "loadBalancerIP"), ("External Name", "externalName")]);
    let ingress = object.list("status.loadBalancer.ingress");
    if !ingress.is_empty() {
        w.field("LoadBalancer Ingress", ingress.iter().map(ingress_point).collect::<Vec<_>>().join(", "));
    }
    spec.list("ports").iter().for_each(|port| service_port(w, port, slices));
    w.field("Session Affinity", spec.str("sessionAffinity"));
    optional(
        w,
        spec,
        &[("External Traffic Policy", "externalTrafficPolicy"), ("Internal Traffic Policy", "internalTrafficPolicy")],
    );
    if int(spec, "healthCheckNodePort") != 0 {
        w.field("HealthCheck NodePort", int(spec, "healthCheckNodePort"));
    }
    if !spec.list("loadBalancerSourceRanges").is_empty() {
        w.field("LoadBalancer Source Ranges", joined(spec, "loadBalancerSourceRanges", ","));
    }
    optional(w, spec, &[("Traffic Distribution", "trafficDistribution")]);
}

fn ingress_point(point: &Tree) -> String {
    match (point.str("ip"), point.str("ipMode")) {
        ("", _) => point.str("hostname").to_string(),
        (ip, "") => ip.to_string(),
        (ip, mode) => format!("{ip} ({mode})"),
    }
}

fn service_port(w: &mut Writer, port: &Tree, slices: &[Tree]) {
    let (name, protocol) = (text_or(port, "name", "<unset>"), port.str("protocol"));
    w.field("Port", format!("{name}\t{}/{protocol}", int(port, "port")));
    w.field("TargetPort", format!("{}/{protocol}", text_or(port, "targetPort", "0")));
    if int(port, "nodePort") != 0 {
        w.field("NodePort", format!("{name}\t{}/{protocol}", int(port, "nodePort")));
    }
    w.field("Endpoints", endpoints_text(slices, port.str("name")));
}

/// The first three ready addresses of a port, and how many more there are.
pub(super) fn endpoints_text(slices: &[Tree], name: &str) -> String {
    const SHOWN: usize = 3;
    if slices.is_empty() {
        return "<none>".to_string();
    }
    let is_ready = |endpoint: &&Tree| endpoint.at("conditions.ready").as_bool() != Some(false);
    let address = |endpoint: &Tree| texts(endpoint, "addresses").into_iter().next().unwrap_or_default();
    let mut all = Vec::new();
    for slice in slices {
        let ready = || slice.list("endpoints").iter().filter(is_ready).map(address);
        if slice.list("ports").is_empty() {
            all.extend(ready());
        }
        for port in slice.list("ports").iter().filter(|port| text(port, "name") == name) {
            all.extend(ready().map(|address| host_port(&address, &text(port, "port"))));
        }
    }
    let shown = all[..all.len().min(SHOWN)].join(",");
    if all.len() > SHOWN { format!("{shown} + {} more...", all.len() - SHOWN) } else { shown }
}

pub(super) fn endpoints(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.write(0, "Subsets:\n");
    for subset in object.list("subsets") {
        for (title, field) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let ips: Vec<&str> = subset.list(field).iter().map(|address| address.str("ip")).collect();
            put!(w, 1, "{title}:\t{}\n", or_none(ips.join(",")));
        }
        let ports = subset.list("ports");
        if !ports.is_empty() {
            w.write(1, "Ports:\n");
            w.write(2, "Name\tPort\tProtocol\n");
            w.write(2, "----\t----\t--------\n");
        }
        for port in ports {
            put!(w, 2, "{}\t{}\t{}\n", text_or(port, "name", "<unset>"), int(port, "port"), port.str("protocol"));
        }
        w.write(0, "\n");
    }
}

pub(super) fn endpoint_slice(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.field("AddressType", object.str("addressType"));
    let ports = object.list("ports");
    if ports.is_empty() {
        w.write(0, "Ports: <unset>\n");
    } else {
        w.write(0, "Ports:\n");
        w.write(1, "Name\tPort\tProtocol\n");
        w.write(1, "----\t----\t--------\n");
    }
    for port in ports {
        let (name, number) = (text_or(port, "name", "<unset>"), text_or(port, "port", "<unset>"));
        put!(w, 1, "{name}\t{number}\t{}\n", port.str("protocol"));
    }
    let endpoints = object.list("endpoints");
    w.write(0, if endpoints.is_empty() { "Endpoints: <none>\n" } else { "Endpoints:\n" });
    for endpoint in endpoints {
        put!(w, 1, "- Addresses:\t{}\n", or_none(joined(endpoint, "addresses", ", ")));
        w.write(2, "Conditions:\n");
        put!(w, 3, "Ready:\t{}\n", text_or(endpoint, "conditions.ready", "<unset>"));
        put!(w, 2, "Hostname:\t{}\n", text_or(endpoint, "hostname", "<unset>"));
        if endpoint.has("targetRef") {
            put!(w, 2, "TargetRef:\t{}/{}\n", endpoint.str("targetRef.kind"), endpoint.str("targetRef.name"));
        }
        put!(w, 2, "NodeName:\t{}\n", text_or(endpoint, "nodeName", "<unset>"));
        put!(w, 2, "Zone:\t{}\n", text_or(endpoint, "zone", "<unset>"));
    }
}

/// What is known about the service of a backend: the service and its slices, or an error.
pub(super) type Backends = BTreeMap<String, Result<(Tree, Vec<Tree>), RelatedError>>;

/// The services that an ingress names.
pub(super) fn backend_services(ingress: &Tree) -> BTreeSet<String> {
    let rules = ingress.list("spec.rules").iter().flat_map(|rule| rule.list("http.paths"));
    let backends = rules.map(|path| path.at("backend")).chain([ingress.at("spec.defaultBackend")]);
    backends.map(|backend| backend.str("service.name").to_string()).filter(|name| !name.is_empty()).collect()
}

pub(super) fn ingress(w: &mut Writer, object: &Tree, backends: &Backends) {
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    w.field("Namespace", object.str("metadata.namespace"));
    let points = object.list("status.loadBalancer.ingress").iter();
    let addresses: BTreeSet<&str> =
        points.map(|point| if point.str("ip").is_empty() { point.str("hostname") } else { point.str("ip") }).collect();
    w.field("Address", addresses.into_iter().collect::<Vec<_>>().join(","));
    w.field("Ingress Class", text_or(object, "spec.ingressClassName", "<none>"));
    let default = match object.at("spec.defaultBackend") {
        Tree::Null => "<default>".to_string(),
        backend => backend_text(backend, backends),
    };
    w.field("Default backend", &default);
    if !object.list("spec.tls").is_empty() {
        w.write(0, "TLS:\n");
    }
    for tls in object.list("spec.tls") {
        let hosts = joined(tls, "hosts", ",");
        match tls.str("secretName") {
            "" => put!(w, 1, "SNI routes {hosts}\n"),
            secret => put!(w, 1, "{secret} terminates {hosts}\n"),
        }
    }
    w.write(0, "Rules:\n  Host\tPath\tBackends\n");
    w.write(1, "----\t----\t--------\n");
    let rules: Vec<&Tree> = object.list("spec.rules").iter().filter(|rule| rule.has("http")).collect();
    if rules.is_empty() {
        put!(w, 1, "*\t*\t{default}\n");
    }
    for rule in rules {
        put!(w, 1, "{}\t\n", text_or(rule, "host", "*"));
        for path in rule.list("http.paths") {
            put!(w, 2, "\t{} \t{}\n", path.str("path"), backend_text(path.at("backend"), backends));
        }
    }
    w.annotations("Annotations", object.map("metadata.annotations"));
}

fn backend_text(backend: &Tree, backends: &Backends) -> String {
    let resource = backend.at("resource");
    if !backend.has("service") {
        if resource.is_null() {
            return String::new();
        }
        let group = text_or(resource, "apiGroup", "<none>");
        return format!("APIGroup: {group}, Kind: {}, Name: {}", resource.str("kind"), resource.str("name"));
    }
    let (name, port) = (backend.str("service.name"), backend.at("service.port"));
    let shown = format!("{name}:{}", if int(port, "number") != 0 { text(port, "number") } else { text(port, "name") });
    match backends.get(name) {
        Some(Ok((service, slices))) => {
            let is_port = |known: &&Tree| {
                (int(port, "number") != 0 && int(port, "number") == int(known, "port"))
                    || (!port.str("name").is_empty() && port.str("name") == known.str("name"))
            };
            let found = service.list("spec.ports").iter().rfind(is_port);
            format!("{shown} ({})", endpoints_text(slices, found.map_or("", |port| port.str("name"))))
        }
        Some(Err(error)) => format!("{shown} (<error: {error}>)"),
        None => shown,
    }
}

pub(super) fn ingress_class(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    metadata(w, object);
    w.field("Controller", object.str("spec.controller"));
    let parameters = object.at("spec.parameters");
    if parameters.is_null() {
        return;
    }
    w.write(0, "Parameters:\n");
    if is_set(parameters, "apiGroup") {
        put!(w, 1, "APIGroup:\t{}\n", parameters.str("apiGroup"));
    }
    put!(w, 1, "Kind:\t{}\n", parameters.str("kind"));
    put!(w, 1, "Name:\t{}\n", parameters.str("name"));
}

pub(super) fn service_cidr(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    metadata(w, object);
    w.field("CIDRs", joined(object, "spec.cidrs", ", "));
    conditions(w, object);
}

fn conditions(w: &mut Writer, object: &Tree) {
    let conditions = object.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    w.write(0, "Status:\n");
    w.write(0, "Conditions:\n");
    w.write(1, "Type\tStatus\tLastTransitionTime\tReason\tMessage\n");
    w.write(1, "----\t------\t------------------\t------\t-------\n");
    for condition in conditions {
        let time = super::values::long_time(condition.str("lastTransitionTime"));
        let (kind, status) = (condition.str("type"), condition.str("status"));
        put!(w, 1, "{kind}\t{status}\t{time}\t{}\t{}\n", condition.str("reason"), condition.str("message"));
    }
}

pub(super) fn ip_address(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    metadata(w, object);
    let parent = object.at("spec.parentRef");
    if parent.is_null() {
        return;
    }
    w.write(0, "Parent Reference:\n");
    for (title, field) in [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")] {
        put!(w, 1, "{title}:\t{}\n", parent.str(field));
    }
}

pub(super) fn service_account(w: &mut Writer, object: &Tree, secrets: &[Tree]) {
    head(w, object);
    let names = |field: &str| object.list(field).iter().map(|one| one.str("name").to_string()).collect::<Vec<_>>();
    let is_token = |secret: &&Tree| {
        secret.str("type") == "kubernetes.io/service-account-token"
            && secret.at("metadata.annotations").get("kubernetes.io/service-account.name").and_then(Tree::as_str)
                == Some(object.str("metadata.name"))
            && secret.at("metadata.annotations").get("kubernetes.io/service-account.uid").and_then(Tree::as_str)
                == Some(object.str("metadata.uid"))
    };
    let tokens = secrets.iter().filter(is_token).map(|secret| secret.str("metadata.name").to_string()).collect();
    let missing = |names: &[String]| -> BTreeSet<String> {
        let exists = |name: &&String| secrets.iter().any(|secret| secret.str("metadata.name") == **name);
        names.iter().filter(|name| !exists(name)).cloned().collect()
    };
    let (pull, mount) = (names("imagePullSecrets"), names("secrets"));
    let (no_pull, no_mount) = (missing(&pull), missing(&mount));
    for (title, names, missing) in [
        ("Image pull secrets:", pull, no_pull),
        ("Mountable secrets: ", mount, no_mount),
        ("Tokens:            ", tokens, BTreeSet::new()),
    ] {
        if names.is_empty() {
            put!(w, 0, "{title}\t<none>\n");
        }
        for (at, name) in names.iter().enumerate() {
            let prefix = if at == 0 { title } else { "                   " };
            let note = if missing.contains(name) { " (not found)" } else { "" };
            put!(w, 0, "{prefix}\t{name}{note}\n");
        }
    }
}
