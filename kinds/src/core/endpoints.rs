//! Endpoints, the predecessor of EndpointSlice.

use api::field::{Errors, Path};
use api::{Tree, validation};

use crate::checks::StoredValues;
use crate::core::service::validate_protocol;
use crate::kind::{Kind, Lifecycle, column};
use crate::{cells, checks};

/// Endpoints.
pub static KIND: Kind = Kind {
    short_names: &["ep"],
    storage: "services/endpoints",
    set_defaults,
    validate: |endpoints, errors| validate_subsets(endpoints, &StoredValues::new(), errors),
    validate_update: |endpoints, old, errors| validate_subsets(endpoints, &addresses(old), errors),
    warnings,
    create_on_update: true,
    columns: &[
        column("Name", "string", "name", 0),
        column("Endpoints", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    lifecycle: Lifecycle {
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..Lifecycle::DEFAULT
    },
    ..Kind::namespaced("", "v1", "Endpoints", "endpoints", "endpoints")
};

const ADDRESS_LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];

fn set_defaults(endpoints: &mut Tree) {
    for subset in endpoints.list_mut("subsets") {
        for port in subset.list_mut("ports") {
            port.set_default("protocol", "TCP");
        }
    }
}

/// Every address, ready or not.
fn addresses(endpoints: &Tree) -> StoredValues<'_> {
    let subsets = endpoints.list("subsets").iter();
    let items = subsets.flat_map(|subset| ADDRESS_LISTS.into_iter().flat_map(|key| subset.list(key)));
    items.map(|address| address.str("ip")).collect()
}

fn validate_subsets(endpoints: &Tree, stored: &StoredValues<'_>, errors: &mut Errors) {
    let subsets = Path::root("subsets");
    for (index, subset) in endpoints.list("subsets").iter().enumerate() {
        let path = subsets.index(index);
        if ADDRESS_LISTS.into_iter().all(|key| subset.list(key).is_empty()) {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for key in ADDRESS_LISTS {
            for (index, address) in subset.list(key).iter().enumerate() {
                validate_address(address, stored, &path.field(key).index(index), errors);
            }
        }
        let ports = subset.list("ports");
        for (index, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &path.field("ports").index(index), errors);
        }
    }
}

fn validate_address(address: &Tree, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) {
    let ip = address.str("ip");
    checks::ip(ip, stored, &path.field("ip"), errors);
    if !address.str("hostname").is_empty() {
        let host = address.str("hostname");
        errors.invalid_all(&path.field("hostname"), host, validation::dns1123_label(host));
    }
    if let Some(node) = address.at("nodeName").as_str() {
        errors.invalid_all(&path.field("nodeName"), node, validation::dns1123_subdomain(node));
    }
    checks::endpoint_ip(ip, &path.field("ip"), errors);
}

fn validate_port(port: &Tree, name_required: bool, path: &Path<'_>, errors: &mut Errors) {
    match port.str("name") {
        "" if name_required => errors.required(&path.field("name"), ""),
        "" => {}
        name => errors.invalid_all(&path.field("name"), name, validation::dns1123_label(name)),
    }
    checks::port_number(port.int("port").unwrap_or(0), &path.field("port"), errors);
    validate_protocol(port.str("protocol"), &path.field("protocol"), errors);
    if let Some(protocol) = port.at("appProtocol").as_str() {
        errors.invalid_all(&path.field("appProtocol"), protocol, validation::qualified_name(protocol));
    }
}

fn warnings(endpoints: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    // The controller writes canonical addresses.
    if endpoints.map("metadata.labels").str("endpoints.kubernetes.io/managed-by") == "endpoint-controller" {
        return warnings;
    }
    for (subset_index, subset) in endpoints.list("subsets").iter().enumerate() {
        for key in ADDRESS_LISTS {
            for (index, address) in subset.list(key).iter().enumerate() {
                let path = format!("subsets[{subset_index}].{key}[{index}].ip");
                warnings.extend(validation::ip_warning(&path, address.str("ip")));
            }
        }
    }
    warnings
}

fn row(endpoints: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(endpoints), Tree::from(ready(endpoints)), cells::age(endpoints, now)]
}

/// The first three ready addresses with ports, and the number of others.
fn ready(endpoints: &Tree) -> String {
    if endpoints.list("subsets").is_empty() {
        return "<none>".to_string();
    }
    let mut found = Vec::new();
    for subset in endpoints.list("subsets") {
        let ips = || subset.list("addresses").iter().map(|address| address.str("ip"));
        if subset.list("ports").is_empty() {
            found.extend(ips().map(str::to_string));
        }
        for port in subset.list("ports") {
            found.extend(ips().map(|ip| with_port(ip, port.int("port").unwrap_or(0))));
        }
    }
    first_three(found)
}

fn with_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Three items and a count of the rest.
pub(crate) fn first_three(mut items: Vec<String>) -> String {
    const SHOWN: usize = 3;
    let more = items.len().saturating_sub(SHOWN);
    items.truncate(SHOWN);
    let text = items.join(",");
    if more > 0 { format!("{text} + {more} more...") } else { text }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn endpoints(ips: &[&str], ports: Tree) -> Tree {
        let addresses: Vec<Tree> = ips.iter().map(|ip| tree! { "ip" => *ip }).collect();
        tree! { "subsets" => list![tree! { "addresses" => addresses, "ports" => ports }] }
    }

    #[test]
    fn validates_subsets() {
        let ports = || list![tree! { "port" => 1 }, tree! { "port" => 2, "name" => "b" }];
        let cases = [
            (endpoints(&["192.0.2.1"], list![tree! { "port" => 80 }]), ""),
            (endpoints(&[], Tree::Null), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            (endpoints(&["192.0.2.1"], ports()), "subsets[0].ports[0].name: Required value"),
        ];
        for (mut endpoints, want) in cases {
            set_defaults(&mut endpoints);
            let mut errors = Errors::new();
            (KIND.validate)(&endpoints, &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }

    #[test]
    fn prints_three_addresses() {
        let ports = list![tree! { "port" => 80 }];
        let endpoints = endpoints(&["192.0.2.1", "192.0.2.2", "fd00::1", "192.0.2.4"], ports);
        assert_eq!(ready(&endpoints), "192.0.2.1:80,192.0.2.2:80,[fd00::1]:80 + 1 more...");
    }
}
