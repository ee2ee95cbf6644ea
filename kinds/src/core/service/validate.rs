//! Validation of services.

use std::collections::BTreeSet;

use api::field::{Errors, Path, Value};
use api::{Tree, validation};

use super::cluster_ips::{validate_addresses_update, validate_cluster_ips, validate_families_update};
use super::{
    CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, externally_accessible, is_headless, kind_of,
    needs_health_check_node_port,
};
use crate::checks::{self, StoredValues};
use crate::meta;

const SPEC: Path<'static> = Path::root("spec");
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MAX_AFFINITY_SECONDS: i64 = 86_400;

pub(super) fn validate(service: &Tree, errors: &mut Errors) {
    validate_service(service, &Tree::Null, errors);
}

pub(super) fn validate_update(service: &Tree, old: &Tree, errors: &mut Errors) {
    validate_addresses_update(service, old, errors);
    validate_families_update(service, old, errors);
    if kind_of(service) == LOAD_BALANCER && kind_of(old) == LOAD_BALANCER {
        let (new, old) = (service.at("spec.loadBalancerClass"), old.at("spec.loadBalancerClass"));
        if new != old {
            errors.invalid(&SPEC.field("loadBalancerClass"), new, "may not change once set");
        }
    }
    validate_load_balancer_class(service, errors);
    validate_health_check_update(service, old, errors);
    validate_service(service, old, errors);
}

/// The health check node port is immutable while it is needed.
fn validate_health_check_update(service: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, stored) = (service.int("spec.healthCheckNodePort"), old.int("spec.healthCheckNodePort"));
    if needs_health_check_node_port(service) && needs_health_check_node_port(old) && new != stored {
        errors.forbidden(&SPEC.field("healthCheckNodePort"), "field is immutable");
    }
}

fn validate_service(service: &Tree, old: &Tree, errors: &mut Errors) {
    validate_topology_annotations(service, errors);
    validate_type_and_fields(service, errors);
    let ports = service.list("spec.ports");
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        validate_port(port, ports.len() > 1, &mut names, &SPEC.field("ports").index(index), errors);
    }
    meta::validate_labels(service.map("spec.selector"), &SPEC.field("selector"), errors);
    validate_session_affinity(service, errors);
    validate_cluster_ips(service, errors);
    let stored = checks::stored(old.list("spec.externalIPs"));
    for (index, ip) in service.list("spec.externalIPs").iter().enumerate() {
        let (ip, path) = (ip.as_str().unwrap_or(""), SPEC.field("externalIPs"));
        if checks::ip(ip, &stored, &path.index(index), errors) {
            checks::endpoint_ip(ip, &path.index(index), errors);
        }
    }
    validate_type(service, errors);
    validate_duplicate_ports(ports, errors);
    validate_source_ranges(service, old, errors);
    validate_allocate_node_ports(service, errors);
    validate_load_balancer_class(service, errors);
    validate_external_traffic(service, errors);
    validate_internal_traffic(service, errors);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let distribution = service.str("spec.trafficDistribution");
    if service.at("spec").has("trafficDistribution") && !distributions.contains(&distribution) {
        errors.not_supported(&SPEC.field("trafficDistribution"), distribution, &distributions);
    }
}

fn validate_topology_annotations(service: &Tree, errors: &mut Errors) {
    let annotations = service.map("metadata.annotations");
    let (mode, hints) = (annotations.get(TOPOLOGY_MODE), annotations.get(TOPOLOGY_HINTS));
    if let (Some(mode), Some(hints)) = (mode, hints)
        && mode != hints
    {
        let metadata = Path::root("metadata");
        let text = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(&metadata.field("annotations").key(TOPOLOGY_MODE), mode, &text);
    }
}

fn validate_type_and_fields(service: &Tree, errors: &mut Errors) {
    let kind = kind_of(service);
    if service.list("spec.ports").is_empty() && !is_headless(service) && kind != EXTERNAL_NAME {
        errors.required(&SPEC.field("ports"), "");
    }
    if matches!(kind, LOAD_BALANCER | NODE_PORT) && is_headless(service) {
        let text = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&SPEC.field("clusterIPs").index(0), "None", &text);
    }
    if kind == EXTERNAL_NAME {
        validate_external_name(service, errors);
    }
}

fn validate_external_name(service: &Tree, errors: &mut Errors) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let value = service.at("spec").at(key);
        if value.as_list().is_some_and(|items| !items.is_empty()) || value.as_str().is_some() {
            errors.forbidden(&SPEC.field(key), "may not be set for ExternalName services");
        }
    }
    // A trailing dot marks a fully qualified name.
    let name = service.str("spec.externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.required(&SPEC.field("externalName"), "");
    } else {
        errors.invalid_all(&SPEC.field("externalName"), name, validation::dns1123_subdomain(name));
    }
}

fn validate_port<'a>(
    port: &'a Tree,
    name_required: bool,
    names: &mut BTreeSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = port.str("name");
    if name.is_empty() && name_required {
        errors.required(&path.field("name"), "");
    } else if !name.is_empty() {
        errors.invalid_all(&path.field("name"), name, validation::dns1123_label(name));
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
    checks::port_number(port.int("port").unwrap_or(0), &path.field("port"), errors);
    validate_protocol(port.str("protocol"), &path.field("protocol"), errors);
    checks::port_number_or_name(port.at("targetPort"), &path.field("targetPort"), errors);
    if let Some(protocol) = port.at("appProtocol").as_str() {
        errors.invalid_all(&path.field("appProtocol"), protocol, validation::qualified_name(protocol));
    }
}

pub(crate) fn validate_protocol(protocol: &str, path: &Path<'_>, errors: &mut Errors) {
    match protocol {
        "" => errors.required(path, ""),
        "TCP" | "UDP" | "SCTP" => {}
        other => errors.not_supported(path, other, &["SCTP", "TCP", "UDP"]),
    }
}

fn validate_session_affinity(service: &Tree, errors: &mut Errors) {
    let path = SPEC.field("sessionAffinityConfig");
    match service.str("spec.sessionAffinity") {
        "" => errors.required(&SPEC.field("sessionAffinity"), ""),
        "None" if service.at("spec").has("sessionAffinityConfig") => {
            errors.forbidden(&path, "must not be set when session affinity is None");
        }
        "None" => {}
        "ClientIP" => validate_client_ip(service.at("spec.sessionAffinityConfig"), &path, errors),
        other => errors.not_supported(&SPEC.field("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn validate_client_ip(config: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let detail = "when session affinity type is ClientIP";
    if config.is_null() {
        return errors.required(path, detail);
    }
    let path = path.field("clientIP");
    if !config.has("clientIP") {
        return errors.required(&path, detail);
    }
    match config.int("clientIP.timeoutSeconds") {
        None => errors.required(&path.field("timeoutSeconds"), detail),
        Some(seconds) if seconds <= 0 || seconds > MAX_AFFINITY_SECONDS => {
            let text = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
            errors.invalid(&path.field("timeoutSeconds"), seconds, &text);
        }
        Some(_) => {}
    }
}

fn validate_type(service: &Tree, errors: &mut Errors) {
    match kind_of(service) {
        "" => errors.required(&SPEC.field("type"), ""),
        CLUSTER_IP => {
            for (index, port) in service.list("spec.ports").iter().enumerate() {
                if port.int("nodePort").unwrap_or(0) != 0 {
                    let path = SPEC.field("ports");
                    let text = "may not be used when `type` is 'ClusterIP'";
                    errors.forbidden(&path.index(index).field("nodePort"), text);
                }
            }
        }
        EXTERNAL_NAME | LOAD_BALANCER | NODE_PORT => {}
        other => {
            let supported = [CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT];
            errors.not_supported(&SPEC.field("type"), other, &supported);
        }
    }
}

/// Ports are identified by protocol and number, on the service and on nodes.
fn validate_duplicate_ports(ports: &[Tree], errors: &mut Errors) {
    let path = SPEC.field("ports");
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let number = port.int("nodePort").unwrap_or(0);
        if number != 0 && !seen.insert((port.str("protocol"), number)) {
            errors.duplicate(&path.index(index).field("nodePort"), number);
        }
    }
    seen.clear();
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert((port.str("protocol"), port.int("port").unwrap_or(0))) {
            errors.duplicate(&path.index(index), port_key(port));
        }
    }
}

/// Upstream prints its internal form of a port with only the key set.
fn port_key(port: &Tree) -> Value {
    let protocol = Tree::from(port.str("protocol"));
    let protocol = String::from_utf8_lossy(&api::json::encode(&protocol, None)).into_owned();
    let number = port.int("port").unwrap_or(0);
    Value::raw(format!(
        r#"{{"Name":"","Protocol":{protocol},"AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
    ))
}

fn validate_source_ranges(service: &Tree, old: &Tree, errors: &mut Errors) {
    let ranges = service.list("spec.loadBalancerSourceRanges");
    let old_ranges = checks::stored(old.list("spec.loadBalancerSourceRanges"));
    if !ranges.is_empty() {
        let path = SPEC.field("LoadBalancerSourceRanges");
        if kind_of(service) != LOAD_BALANCER {
            errors.forbidden(&path, ONLY_LOAD_BALANCER);
        }
        for (index, range) in ranges.iter().enumerate() {
            // Surrounding blanks are accepted, for compatibility with the former annotation.
            checks::cidr(range.as_str().unwrap_or("").trim(), &old_ranges, &path.index(index), errors);
        }
    } else if let Some(ranges) = service.map("metadata.annotations").get(SOURCE_RANGES_ANNOTATION) {
        let metadata = Path::root("metadata");
        let annotations = metadata.field("annotations");
        let path = annotations.key(SOURCE_RANGES_ANNOTATION);
        if kind_of(service) != LOAD_BALANCER {
            errors.forbidden(&path, ONLY_LOAD_BALANCER);
        }
        let same = old.map("metadata.annotations").get(SOURCE_RANGES_ANNOTATION) == Some(ranges);
        let ranges = ranges.as_str().unwrap_or("").trim();
        for range in ranges.split(',').filter(|_| !same && !ranges.is_empty()) {
            checks::cidr(range.trim(), &old_ranges, &path, errors);
        }
    }
}

fn validate_allocate_node_ports(service: &Tree, errors: &mut Errors) {
    match (kind_of(service) == LOAD_BALANCER, service.at("spec").has("allocateLoadBalancerNodePorts")) {
        (false, true) => errors.forbidden(&SPEC.field("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER),
        (true, false) => errors.required(&Path::root("allocateLoadBalancerNodePorts"), ""),
        _ => {}
    }
}

fn validate_load_balancer_class(service: &Tree, errors: &mut Errors) {
    let Some(class) = service.at("spec.loadBalancerClass").as_str() else { return };
    let path = SPEC.field("loadBalancerClass");
    if kind_of(service) == LOAD_BALANCER {
        errors.invalid_all(&path, class, validation::qualified_name(class));
    } else {
        errors.forbidden(&path, ONLY_LOAD_BALANCER);
    }
}

fn validate_external_traffic(service: &Tree, errors: &mut Errors) {
    let path = SPEC.field("externalTrafficPolicy");
    match (externally_accessible(service), service.str("spec.externalTrafficPolicy")) {
        (false, "") | (true, "Cluster" | "Local") => {}
        (true, "") => errors.required(&path, ""),
        (true, other) => errors.not_supported(&path, other, &["Cluster", "Local"]),
        (false, policy) => errors.invalid(&path, policy, "may only be set for externally-accessible services"),
    }
    let path = SPEC.field("healthCheckNodePort");
    match (needs_health_check_node_port(service), service.int("spec.healthCheckNodePort").unwrap_or(0)) {
        // A missing but required port is allocated later.
        (_, 0) => {}
        (true, number) => checks::port_number(number, &path, errors),
        (false, number) => {
            let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, number, text);
        }
    }
}

fn validate_internal_traffic(service: &Tree, errors: &mut Errors) {
    let path = SPEC.field("internalTrafficPolicy");
    match service.at("spec.internalTrafficPolicy").as_str() {
        None if matches!(kind_of(service), CLUSTER_IP | NODE_PORT | LOAD_BALANCER) => errors.required(&path, ""),
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.not_supported(&path, other, &["Cluster", "Local"]),
    }
}

pub(super) fn validate_status(service: &Tree, old: &Tree, errors: &mut Errors) {
    let ingress = service.list("status.loadBalancer.ingress");
    let status = Path::root("status");
    let balancer = status.field("loadBalancer");
    let path = balancer.field("ingress");
    if kind_of(service) != LOAD_BALANCER && !ingress.is_empty() {
        return errors.forbidden(&path, "may only be used when `spec.type` is \"LoadBalancer\"");
    }
    let stored = old.list("status.loadBalancer.ingress").iter().map(|ingress| ingress.str("ip")).collect();
    for (index, item) in ingress.iter().enumerate() {
        validate_ingress_ip(item, &stored, &path.index(index), errors);
        validate_ingress_hostname(item, &path.index(index), errors);
    }
}

fn validate_ingress_ip(ingress: &Tree, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) {
    let ip = ingress.str("ip");
    if !ip.is_empty() {
        checks::ip(ip, stored, &path.field("ip"), errors);
    }
    let mode_path = path.field("ipMode");
    match (ip.is_empty(), ingress.at("ipMode").as_str()) {
        (false, None) => errors.required(&mode_path, "must be specified when `ip` is set"),
        (true, Some(_)) => errors.forbidden(&mode_path, "may not be specified when `ip` is not set"),
        (false, Some(mode)) if !matches!(mode, "Proxy" | "VIP") => {
            errors.not_supported(&mode_path, mode, &["Proxy", "VIP"]);
        }
        _ => {}
    }
}

pub(crate) fn validate_ingress_hostname(ingress: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let host = ingress.str("hostname");
    if host.is_empty() {
        return;
    }
    errors.invalid_all(&path.field("hostname"), host, validation::dns1123_subdomain(host));
    if validation::parse_ip(host).is_some() {
        errors.invalid(&path.field("hostname"), host, "must be a DNS name, not an IP address");
    }
}

/// Warnings about non-canonical load balancer addresses.
pub(crate) fn load_balancer_warnings(object: &Tree) -> Vec<String> {
    let ingress = object.list("status.loadBalancer.ingress").iter().enumerate();
    let warning = |(index, ingress): (usize, &Tree)| {
        validation::ip_warning(&format!("status.loadBalancer.ingress[{index}]"), ingress.str("ip"))
    };
    ingress.filter(|(_, ingress)| !ingress.str("ip").is_empty()).flat_map(warning).collect()
}

pub(super) fn warnings(service: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = service.at("spec");
    if service.map("metadata.annotations").contains(TOPOLOGY_HINTS) {
        warnings.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    for (index, ip) in spec.list("clusterIPs").iter().filter_map(Tree::as_str).enumerate() {
        warnings.extend(validation::ip_warning(&format!("spec.clusterIPs[{index}]"), ip));
    }
    let is_headless = kind_of(service) == CLUSTER_IP && spec.str("clusterIP") == "None";
    if is_headless {
        let ignored = [
            ("loadBalancerIP", !spec.str("loadBalancerIP").is_empty()),
            ("externalIPs", !spec.list("externalIPs").is_empty()),
            ("SessionAffinity", spec.str("sessionAffinity") != "None"),
        ];
        for (key, _) in ignored.into_iter().filter(|(_, set)| *set) {
            warnings.push(format!("spec.{key} is ignored for headless services"));
        }
    }
    for (index, ip) in spec.list("externalIPs").iter().filter_map(Tree::as_str).enumerate() {
        warnings.extend(validation::ip_warning(&format!("spec.externalIPs[{index}]"), ip));
    }
    let has_external_ips = !spec.list("externalIPs").is_empty();
    let is_external_name = spec.str("type") == "ExternalName";
    if has_external_ips && !is_headless && !is_external_name {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_string());
    }
    warnings.extend(validation::ip_warning("spec.loadBalancerIP", spec.str("loadBalancerIP")));
    for (index, range) in spec.list("loadBalancerSourceRanges").iter().filter_map(Tree::as_str).enumerate() {
        warnings.extend(validation::cidr_warnings(&format!("spec.loadBalancerSourceRanges[{index}]"), range));
    }
    if is_external_name && has_external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_string());
    }
    if !is_external_name && !spec.str("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_string());
    }
    if spec.str("trafficDistribution") == "PreferClose" {
        let text = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.to_string());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn service(spec: Tree) -> Tree {
        let mut service = tree! { "spec" => spec };
        super::super::defaults::set_defaults(&mut service);
        service
    }

    fn check(spec: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate(&service(spec), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn ports() {
        let port = |name: &str, number: i64| tree! { "name" => name, "port" => number };
        check(tree! { "ports" => list![port("", 80)] }, &[]);
        check(tree! {}, &["spec.ports: Required value"]);
        check(
            tree! { "ports" => list![port("a", 80), port("a", 80)] },
            &[
                "spec.ports[1].name: Duplicate value: \"a\"",
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        );
    }

    #[test]
    fn addresses() {
        let with = |key: &str, value: Tree| tree! { "ports" => list![tree! { "port" => 80 }], key => value };
        check(
            with("clusterIPs", list!["10.0.0.1", "10.0.0.2"]),
            &[
                r#"spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: must be empty when `clusterIP` is not specified"#,
                r#"spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family"#,
            ],
        );
        check(
            with("externalIPs", list!["127.0.0.1"]),
            &[
                r#"spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
            ],
        );
        check(
            with("loadBalancerSourceRanges", list!["10.0.0.0/8"]),
            &["spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        );
    }

    #[test]
    fn warns_about_deprecated_and_ignored_fields() {
        let check = |spec: Tree, want: &[&str]| assert_eq!(warnings(&service(spec), None), want);
        check(
            tree! { "trafficDistribution" => "PreferClose" },
            &["spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""],
        );
        check(
            tree! { "clusterIP" => "None", "externalIPs" => list!["1.2.3.4"] },
            &["spec.externalIPs is ignored for headless services"],
        );
        check(
            tree! { "type" => "ExternalName", "externalName" => "a", "externalIPs" => list!["1.2.3.4"] },
            &["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
        );
        check(
            tree! { "externalName" => "a" },
            &["spec.externalName is ignored when spec.type is not \"ExternalName\""],
        );
        let ingress = list![tree! { "hostname" => "a" }, tree! { "ip" => "::0" }];
        let status = tree! { "status" => tree! { "loadBalancer" => tree! { "ingress" => ingress } } };
        let found = load_balancer_warnings(&status);
        assert!(found.len() == 1 && found[0].starts_with("status.loadBalancer.ingress[1]"), "{found:?}");
        let mut hinted = service(tree! {});
        hinted.set("metadata", tree! { "annotations" => tree! { TOPOLOGY_HINTS => "Auto" } });
        let text = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead";
        assert_eq!(warnings(&hinted, None), [text]);
    }

    #[test]
    fn first_address_is_immutable() {
        let with = |ip: &str| {
            service(tree! { "ports" => list![tree! { "port" => 80 }], "clusterIP" => ip, "clusterIPs" => list![ip] })
        };
        let mut errors = Errors::new();
        validate_update(&with("10.0.0.2"), &with("10.0.0.1"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#]);
    }
}
