//! Nodes, and what their pods request.

use api::Tree;
use api::quantity::{Format, Quantity};
use podmodel::{Resources, limits, requests};

use super::related::RelatedError;
use super::values::{age, joined, long_time, or_none, text, text_or};
use super::writer::{Writer, put, text_of};

/// What is known besides the node.
pub(super) struct Neighbors<'r> {
    /// Its lease, or why there is none.
    pub(super) lease: Result<Tree, RelatedError>,
    /// Its pods that have not ended; None if the user may not list them.
    pub(super) pods: Option<&'r [Tree]>,
}

pub(super) fn describe(w: &mut Writer, node: &Tree, neighbors: &Neighbors, now: i64) {
    w.field("Name", node.str("metadata.name"));
    w.field("Roles", or_none(roles(node)));
    w.labels("Labels", node.map("metadata.labels"));
    w.annotations("Annotations", node.map("metadata.annotations"));
    w.field("CreationTimestamp", long_time(node.str("metadata.creationTimestamp")));
    taints(w, node);
    w.field("Unschedulable", node.bool("spec.unschedulable"));
    lease(w, &neighbors.lease);
    conditions(w, node);
    w.write(0, "Addresses:\n");
    for address in node.list("status.addresses") {
        put!(w, 1, "{}:\t{}\n", address.str("type"), address.str("address"));
    }
    for (title, field) in [("Capacity", "status.capacity"), ("Allocatable", "status.allocatable")] {
        let list = node.map(field);
        if !list.is_empty() {
            put!(w, 0, "{title}:\n");
        }
        for (name, quantity) in list.iter() {
            put!(w, 0, "  {name}:\t{}\n", text_of(quantity));
        }
    }
    system(w, node);
    super::pod::optional(w, node, &[("PodCIDR", "spec.podCIDR")]);
    if !node.list("spec.podCIDRs").is_empty() {
        w.field("PodCIDRs", joined(node, "spec.podCIDRs", ","));
    }
    super::pod::optional(w, node, &[("ProviderID", "spec.providerID")]);
    match neighbors.pods {
        Some(pods) => pod_resources(w, node, pods, now),
        None => w.field("Pods", "not authorized"),
    }
}

fn roles(node: &Tree) -> String {
    let role = |(key, value): (&str, &Tree)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_string()),
        None if key == "kubernetes.io/role" => Some(text_of(value)),
        None => None,
    };
    let roles: std::collections::BTreeSet<String> =
        node.map("metadata.labels").iter().filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn taints(w: &mut Writer, node: &Tree) {
    let mut taints: Vec<&Tree> = node.list("spec.taints").iter().collect();
    taints.sort_by_key(|taint| format!("{},{}", taint.str("effect"), taint.str("key")));
    let line = |taint: &Tree| {
        let (key, value, effect) = (taint.str("key"), taint.str("value"), taint.str("effect"));
        match (effect, value) {
            ("", "") => key.to_string(),
            ("", value) => format!("{key}={value}:"),
            (effect, "") => format!("{key}:{effect}"),
            (effect, value) => format!("{key}={value}:{effect}"),
        }
    };
    w.multiline("", "Taints", taints.into_iter().map(line).collect());
}

fn lease(w: &mut Writer, lease: &Result<Tree, RelatedError>) {
    let lease = match lease {
        Ok(lease) => lease,
        Err(error) => return w.field("Lease", format!("Failed to get lease: {error}")),
    };
    w.write(0, "Lease:\n");
    put!(w, 1, "HolderIdentity:\t{}\n", text_or(lease, "spec.holderIdentity", "<unset>"));
    for (title, field) in [("AcquireTime", "spec.acquireTime"), ("RenewTime", "spec.renewTime")] {
        let time = text(lease, field);
        put!(w, 1, "{title}:\t{}\n", if time.is_empty() { "<unset>".to_string() } else { long_time(&time) });
    }
}

fn conditions(w: &mut Writer, node: &Tree) {
    let conditions = node.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    w.write(0, "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n");
    w.write(1, "----\t------\t-----------------\t------------------\t------\t-------\n");
    for condition in conditions {
        let (beat, changed) = (condition.str("lastHeartbeatTime"), condition.str("lastTransitionTime"));
        let (kind, status) = (condition.str("type"), condition.str("status"));
        let (reason, message) = (condition.str("reason"), condition.str("message"));
        put!(w, 1, "{kind} \t{status} \t{} \t{} \t{reason} \t{message}\n", long_time(beat), long_time(changed));
    }
}

fn system(w: &mut Writer, node: &Tree) {
    w.write(0, "System Info:\n");
    for (title, field) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
        ("Kube-Proxy Version", "kubeProxyVersion"),
    ] {
        put!(w, 0, "  {title}:\t{}\n", text(node.at("status.nodeInfo"), field));
    }
}

/// The format of memory in a pod: that of its first quantity.
fn memory_format(pods: &[Tree], side: &str) -> Format {
    let containers =
        pods.iter().flat_map(|pod| pod.list("spec.containers").iter().chain(pod.list("spec.initContainers")));
    let quantity = |container: &Tree| Quantity::parse(container.at("resources").at(side).str("memory")).ok();
    containers.filter_map(quantity).next().map_or(Format::BinarySI, |quantity| quantity.format())
}

fn shown(resources: &Resources, name: &str, memory: Format) -> String {
    match name {
        "cpu" => Quantity::milli(resources.get(name), Format::DecimalSI).to_string(),
        "memory" => Quantity::new(resources.get(name), memory).to_string(),
        _ => Quantity::new(resources.get(name), Format::BinarySI).to_string(),
    }
}

/// An amount with its share of what the node has.
fn with_share(resources: &Resources, total: &Resources, name: &str, memory: Format) -> String {
    let (part, whole) = (resources.get(name), total.get(name));
    let percent = if whole == 0 { 0 } else { (part as f64 / whole as f64 * 100.0) as i64 };
    format!("{} ({percent}%)", shown(resources, name, memory))
}

fn pod_resources(w: &mut Writer, node: &Tree, pods: &[Tree], now: i64) {
    w.field("Non-terminated Pods", format!("({} in total)", pods.len()));
    w.write(1, "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n");
    w.write(1, "---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n");
    let allocatable = node.map("status.allocatable");
    let total = Resources::read(if allocatable.is_empty() { node.map("status.capacity") } else { allocatable });
    let (mut all_requests, mut all_limits) = (Resources::default(), Resources::default());
    for pod in pods {
        let (own, most) = (requests(pod), limits(pod));
        let one = std::slice::from_ref(pod);
        let (low, high) = (memory_format(one, "requests"), memory_format(one, "limits"));
        put!(
            w,
            1,
            "{}\t{}\t\t{}\t{}\t{}\t{}\t{}\n",
            pod.str("metadata.namespace"),
            pod.str("metadata.name"),
            with_share(&own, &total, "cpu", low),
            with_share(&most, &total, "cpu", high),
            with_share(&own, &total, "memory", low),
            with_share(&most, &total, "memory", high),
            age(pod.str("metadata.creationTimestamp"), now)
        );
        all_requests.add(&own);
        all_limits.add(&most);
    }
    w.write(0, "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n");
    w.write(1, "Resource\tRequests\tLimits\n");
    w.write(1, "--------\t--------\t------\n");
    let (low, high) = (memory_format(pods, "requests"), memory_format(pods, "limits"));
    let names: Vec<&str> = total.iter().map(|(name, _)| name).collect();
    let huge = names.iter().copied().filter(|name| name.starts_with("hugepages-"));
    for name in ["cpu", "memory", "ephemeral-storage"].into_iter().chain(huge) {
        let (requested, limited) =
            (with_share(&all_requests, &total, name, low), with_share(&all_limits, &total, name, high));
        put!(w, 1, "{name}\t{requested}\t{limited}\n");
    }
    let is_extended = |name: &&str| {
        !name.starts_with("hugepages-") && !matches!(*name, "cpu" | "memory" | "ephemeral-storage" | "pods")
    };
    for name in names.into_iter().filter(is_extended) {
        put!(w, 1, "{name}\t{}\t{}\n", all_requests.get(name), all_limits.get(name));
    }
}
