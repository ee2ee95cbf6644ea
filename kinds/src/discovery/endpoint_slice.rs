//! EndpointSlice: a subset of a service's endpoints.

use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::{Tree, validation};

use crate::checks::StoredValues;
use crate::core::endpoints::first_three;
use crate::core::service::validate_protocol;
use crate::kind::{Context, Kind, bump_generation, column};
use crate::{cells, checks, meta};

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY_LABELS: usize = 16;
const MAX_HINTS: usize = 8;

pub(crate) static KIND: Kind = Kind {
    set_defaults,
    prepare_create: |slice, _| slice.child("metadata").set("generation", 1),
    prepare_update,
    validate: |slice, errors| validate_slice(slice, &StoredValues::new(), errors),
    validate_update,
    warnings,
    columns: &[
        column("Name", "string", "name", 0),
        column("AddressType", "string", "", 0),
        column("Ports", "string", "", 0),
        column("Endpoints", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice")
};

fn set_defaults(slice: &mut Tree) {
    for port in slice.list_mut("ports") {
        port.set_default("name", "");
        port.set_default("protocol", "TCP");
    }
}

fn prepare_update(slice: &mut Tree, old: &Tree, _: &Context<'_>) {
    bump_generation(slice, old, &["addressType", "endpoints", "ports"]);
}

fn validate_update(slice: &Tree, old: &Tree, errors: &mut Errors) {
    let addresses = old.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
    let stored: StoredValues<'_> = addresses.filter_map(Tree::as_str).collect();
    validate_slice(slice, &stored, errors);
    checks::declared_immutable((slice, old), "addressType", &Path::nil(), errors);
}

fn validate_slice(slice: &Tree, stored: &StoredValues<'_>, errors: &mut Errors) {
    let address_type = slice.str("addressType");
    match address_type {
        "" => errors.required(&Path::root("addressType"), ""),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.not_supported(&Path::root("addressType"), other, &["FQDN", "IPv4", "IPv6"]),
    }
    let endpoints = slice.list("endpoints");
    let path = Path::root("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many(&path, endpoints.len(), MAX_ENDPOINTS);
    } else {
        for (index, endpoint) in endpoints.iter().enumerate() {
            validate_endpoint(endpoint, address_type, stored, &path.index(index), errors);
        }
    }
    validate_ports(slice.list("ports"), errors);
}

fn validate_endpoint(
    endpoint: &Tree,
    address_type: &str,
    stored: &StoredValues<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let addresses = endpoint.list("addresses");
    let addresses_path = path.field("addresses");
    if addresses.is_empty() {
        errors.required(&addresses_path, "");
    } else if addresses.len() > MAX_ADDRESSES {
        errors.too_many(&addresses_path, addresses.len(), MAX_ADDRESSES);
    }
    for (index, address) in addresses.iter().enumerate() {
        let (address, path) = (address.as_str().unwrap_or(""), addresses_path.index(index));
        match address_type {
            "IPv4" | "IPv6" if checks::ip(address, stored, &path, errors) => {
                validate_family(address, address_type, &addresses_path, errors);
                checks::endpoint_ip(address, &path, errors);
            }
            "FQDN" => validate_domain(address, &path, errors),
            _ => {}
        }
    }
    validate_names(endpoint, path, errors);
    validate_hints(endpoint.at("hints"), &path.field("hints"), errors);
}

fn validate_family(address: &str, family: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_ipv6 = validation::parse_ip(address).is_some_and(|address| address.is_ipv6());
    if is_ipv6 != (family == "IPv6") {
        errors.invalid(path, address, &format!("must be an {family} address"));
    }
}

/// A domain of at least two labels; a trailing dot is accepted.
fn validate_domain(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let messages = validation::dns1123_subdomain(name);
    if !messages.is_empty() {
        return errors.invalid(path, name, &messages.join(","));
    }
    if !name.contains('.') {
        return errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    let bad = name
        .split('.')
        .find_map(|label| Some((label, validation::dns1123_label(label))).filter(|(_, m)| !m.is_empty()));
    if let Some((label, messages)) = bad {
        errors.invalid(path, label, &messages.join(","));
    }
}

fn validate_names(endpoint: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = endpoint.at("nodeName").as_str() {
        errors.invalid_all(&path.field("nodeName"), node, validation::dns1123_subdomain(node));
    }
    let topology = endpoint.map("deprecatedTopology");
    if topology.len() > MAX_TOPOLOGY_LABELS {
        errors.too_many(&path.field("deprecatedTopology"), topology.len(), MAX_TOPOLOGY_LABELS);
    }
    meta::validate_labels(topology, &path.field("deprecatedTopology"), errors);
    if let Some(host) = endpoint.at("hostname").as_str() {
        errors.invalid_all(&path.field("hostname"), host, validation::dns1123_label(host));
    }
}

type NameRule = fn(&str) -> Vec<String>;

fn validate_hints(hints: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let lists: [(&str, NameRule); 2] =
        [("forZones", validation::label_value), ("forNodes", validation::dns1123_subdomain)];
    for (key, rule) in lists {
        let (items, path) = (hints.list(key), path.field(key));
        if items.len() > MAX_HINTS {
            errors.too_many(&path, items.len(), MAX_HINTS);
            return;
        }
        let mut names = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let name = item.str("name");
            if !names.insert(name) {
                errors.duplicate(&path.index(index).field("name"), name);
            }
            errors.invalid_all(&path.index(index).field("name"), name, rule(name));
        }
    }
}

fn validate_ports(ports: &[Tree], errors: &mut Errors) {
    let list = Path::root("ports");
    if ports.len() > MAX_PORTS {
        return errors.too_many(&list, ports.len(), MAX_PORTS);
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (name, path) = (port.str("name"), list.index(index));
        if !name.is_empty() {
            errors.invalid_all(&path.field("name"), name, validation::dns1123_label(name));
        }
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        validate_protocol(port.str("protocol"), &path.field("protocol"), errors);
        if let Some(protocol) = port.at("appProtocol").as_str() {
            errors.invalid_all(&path.field("appProtocol"), protocol, validation::qualified_name(protocol));
        }
    }
}

fn warnings(slice: &Tree, _: Option<&Tree>) -> Vec<String> {
    if slice.str("addressType") == "FQDN" {
        return vec!["spec.addressType: FQDN endpoints are deprecated".to_string()];
    }
    let mut warnings = Vec::new();
    for (endpoint_index, endpoint) in slice.list("endpoints").iter().enumerate() {
        for (index, address) in endpoint.list("addresses").iter().enumerate() {
            let path = format!("endpoints[{endpoint_index}].addresses[{index}]");
            warnings.extend(validation::ip_warning(&path, address.as_str().unwrap_or("")));
        }
    }
    warnings
}

fn row(slice: &Tree, now: i64) -> Vec<Tree> {
    let ports = slice.list("ports").iter().map(port_text).collect();
    let addresses = slice.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
    let addresses = addresses.filter_map(Tree::as_str).map(str::to_string).collect();
    vec![
        cells::name(slice),
        Tree::from(slice.str("addressType")),
        Tree::from(or_unset(ports)),
        Tree::from(or_unset(addresses)),
        cells::age(slice, now),
    ]
}

fn port_text(port: &Tree) -> String {
    match (port.int("port"), port.at("name").as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_string(),
        _ => "*".to_string(),
    }
}

fn or_unset(items: Vec<String>) -> String {
    if items.is_empty() { "<unset>".to_string() } else { first_three(items) }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(endpoint: Tree, want: &[&str]) {
        let mut slice = tree! { "addressType" => "IPv4", "endpoints" => list![endpoint] };
        set_defaults(&mut slice);
        let mut errors = Errors::new();
        (KIND.validate)(&slice, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn endpoints() {
        check(tree! { "addresses" => list!["192.0.2.1"] }, &[]);
        check(tree! {}, &["endpoints[0].addresses: Required value"]);
        check(
            tree! { "addresses" => list!["fd00::1"] },
            &["endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address"],
        );
        let zones = list![tree! { "name" => "a" }, tree! { "name" => "a" }];
        check(
            tree! { "addresses" => list!["192.0.2.1"], "hints" => tree! { "forZones" => zones } },
            &["endpoints[0].hints.forZones[1].name: Duplicate value: \"a\""],
        );
    }
}
