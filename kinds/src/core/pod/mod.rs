//! Pod.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::{Kind, Subresource, Verb, column, selectable};
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
        selectable("spec.hostNetwork"),
        selectable("status.phase"),
        selectable("status.podIP"),
        selectable("status.podIPs"),
        selectable("status.nominatedNodeName"),
    ],
    set_defaults: podspec::set_pod_defaults,
    validate,
    ..Kind::namespaced("", "v1", "Pod", "pods", "pod")
};

fn validate(pod: &Tree, errors: &mut Errors) {
    let volume_pod = podspec::volume::Pod { is_pod: true, name: pod.str("metadata.name") };
    podspec::spec::validate(pod.at("spec"), volume_pod, &Path::root("spec"), errors);
}
