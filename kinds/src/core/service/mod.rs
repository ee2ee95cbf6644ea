//! Service. The server allocates addresses and node ports: `families` and `allocation` compute what a service needs,
//! keeps and releases.

pub mod allocation;
mod cells;
mod cluster_ips;
mod defaults;
pub mod families;
mod prepare;
mod validate;

use api::Tree;
pub(crate) use cells::load_balancer_addresses;
pub(crate) use validate::{load_balancer_warnings, validate_ingress_hostname, validate_protocol};

use crate::kind::{Kind, Lifecycle, StatusRules, Subresource, Verb, column, selectable};
use crate::strategy;

pub(crate) const EXTERNAL_NAME: &str = "ExternalName";
const LOAD_BALANCER: &str = "LoadBalancer";
const NODE_PORT: &str = "NodePort";
const CLUSTER_IP: &str = "ClusterIP";
const NONE: &str = "None";

/// Service.
pub static KIND: Kind = Kind {
    short_names: &["svc"],
    categories: &["all"],
    storage: "services/specs",
    subresources: &[
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "ServiceProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    validate_name: crate::names::dns_label,
    set_defaults: defaults::set_defaults,
    prepare_create: prepare::prepare_create,
    prepare_update: prepare::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: validate::warnings,
    status_warnings: validate::load_balancer_warnings,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: strategy::update_status,
        validate: validate::validate_status,
        reset: &["spec"],
    }),
    create_on_update: true,
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("Cluster-IP", "string", "", 0),
        column("External-IP", "string", "", 0),
        column("Port(s)", "string", "", 0),
        column("Age", "string", "", 0),
        column("Selector", "string", "", 1),
    ],
    cells: cells::cells,
    selectable: &[selectable("spec.clusterIP"), selectable("spec.type")],
    lifecycle: Lifecycle { allocates: true, ..Lifecycle::RETURNS_DELETED },
    ..Kind::namespaced("", "v1", "Service", "services", "service")
};

fn kind_of(service: &Tree) -> &str {
    service.str("spec.type")
}

/// A service without a cluster IP: its DNS name resolves to its pods' addresses.
pub fn is_headless(service: &Tree) -> bool {
    matches!(service.list("spec.clusterIPs"), [only] if only.as_str() == Some(NONE))
}

/// Whether traffic from outside the cluster can reach it.
fn externally_accessible(service: &Tree) -> bool {
    match kind_of(service) {
        LOAD_BALANCER | NODE_PORT => true,
        CLUSTER_IP => !service.list("spec.externalIPs").is_empty(),
        _ => false,
    }
}

pub(crate) fn needs_cluster_ip(service: &Tree) -> bool {
    kind_of(service) != EXTERNAL_NAME
}

pub(crate) fn needs_node_ports(service: &Tree) -> bool {
    match kind_of(service) {
        NODE_PORT => true,
        LOAD_BALANCER => service.at("spec.allocateLoadBalancerNodePorts").as_bool() != Some(false),
        _ => false,
    }
}

/// Load balancers check this port for local endpoints on a node.
pub fn needs_health_check_node_port(service: &Tree) -> bool {
    kind_of(service) == LOAD_BALANCER && service.str("spec.externalTrafficPolicy") == "Local"
}
