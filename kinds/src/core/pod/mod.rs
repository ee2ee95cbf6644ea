//! Pod.

pub mod binding;
mod cells;
mod conditions;
pub mod ephemeral_containers;
pub mod eviction;
mod prepare;
pub mod resize;
mod status;
mod update;
mod validate;

use api::{Str, Tree};

use crate::kind::{Kind, Selectable, StatusRules, Subresource, Verb, column, selectable};
use crate::podspec;

pub static KIND: Kind = Kind {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource { name: "attach", gvk: Some(("", "v1", "PodAttachOptions")), verbs: &[Verb::Create, Verb::Get] },
        Subresource { name: "binding", gvk: Some(("", "v1", "Binding")), verbs: &[Verb::Create] },
        Subresource { name: "ephemeralcontainers", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "eviction", gvk: Some(("policy", "v1", "Eviction")), verbs: &[Verb::Create] },
        Subresource { name: "exec", gvk: Some(("", "v1", "PodExecOptions")), verbs: &[Verb::Create, Verb::Get] },
        Subresource { name: "log", gvk: None, verbs: &[Verb::Get] },
        Subresource {
            name: "portforward",
            gvk: Some(("", "v1", "PodPortForwardOptions")),
            verbs: &[Verb::Create, Verb::Get],
        },
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "PodProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "resize", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Ready", "string", "", 0),
        column("Status", "string", "", 0),
        column("Restarts", "string", "", 0),
        column("Age", "string", "", 0),
        column("IP", "string", "", 1),
        column("Node", "string", "", 1),
        column("Nominated Node", "string", "", 1),
        column("Readiness Gates", "string", "", 1),
    ],
    selectable: &[
        selectable("spec.nodeName"),
        selectable("spec.restartPolicy"),
        selectable("spec.schedulerName"),
        selectable("spec.serviceAccountName"),
        Selectable { name: "spec.hostNetwork", get: host_network },
        selectable("status.phase"),
        Selectable { name: "status.podIP", get: first_address },
        Selectable { name: "status.podIPs", get: |_, _| Str::const_new("") },
        selectable("status.nominatedNodeName"),
    ],
    set_defaults: prepare::set_defaults,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate: validate::create,
    validate_update: update::validate,
    warnings,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: status::prepare,
        validate: status::validate,
        reset: &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
    }),
    cells: cells::cells,
    ..Kind::namespaced("", "v1", "Pod", "pods", "pod")
};

/// Upstream warns on create alone: people seldom update pods by hand.
fn warnings(pod: &Tree, old: Option<&Tree>) -> Vec<String> {
    if old.is_some() { Vec::new() } else { podspec::pod_warnings(pod) }
}

fn host_network(pod: &Tree, path: &'static str) -> Str {
    Str::const_new(if pod.bool(path) { "true" } else { "false" })
}

fn first_address(pod: &Tree, _: &'static str) -> Str {
    pod.list("status.podIPs").first().map(|address| Str::new(address.str("ip"))).unwrap_or_default()
}
