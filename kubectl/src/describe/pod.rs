//! Pods and the templates of pods.

use api::Tree;

use super::values::{age, controller, format_selector, int, is_set, long_time, text};
use super::writer::{Writer, put};
use super::{containers, volumes};

pub(super) fn describe(w: &mut Writer, pod: &Tree, now: i64) {
    w.field("Name", pod.str("metadata.name"));
    w.field("Namespace", pod.str("metadata.namespace"));
    optional(
        w,
        pod,
        &[
            ("Priority", "spec.priority"),
            ("Priority Class Name", "spec.priorityClassName"),
            ("Runtime Class Name", "spec.runtimeClassName"),
            ("Service Account", "spec.serviceAccountName"),
        ],
    );
    match pod.str("spec.nodeName") {
        "" => w.field("Node", "<none>"),
        node => w.field("Node", format!("{node}/{}", pod.str("status.hostIP"))),
    }
    if is_set(pod, "status.startTime") {
        w.field("Start Time", long_time(pod.str("status.startTime")));
    }
    w.labels("Labels", pod.map("metadata.labels"));
    w.annotations("Annotations", pod.map("metadata.annotations"));
    status(w, pod, now);
    containers::seccomp(w, 0, pod.at("spec.securityContext.seccompProfile"));
    w.field("IP", pod.str("status.podIP"));
    addresses(w, pod);
    if let Some(controller) = controller(pod) {
        w.field("Controlled By", controller);
    }
    optional(w, pod, &[("NominatedNodeName", "status.nominatedNodeName")]);
    if is_set(pod, "spec.resources") {
        w.write(0, "Resources:\n");
        containers::resources(w, pod.at("spec.resources"), 1);
    }
    all_containers(w, pod);
    conditions(w, pod);
    volumes::describe(w, pod.list("spec.volumes"), "");
    w.field("QoS Class", text(pod, "status.qosClass"));
    w.labels("Node-Selectors", pod.map("spec.nodeSelector"));
    tolerations(w, "Tolerations", pod.list("spec.tolerations"));
    spread(w, pod.list("spec.topologySpreadConstraints"), "");
}

/// Fields that are left out if they are missing.
pub(super) fn optional(w: &mut Writer, object: &Tree, fields: &[(&str, &str)]) {
    for (title, path) in fields {
        let value = text(object, path);
        if !value.is_empty() {
            w.field(title, value);
        }
    }
}

fn status(w: &mut Writer, pod: &Tree, now: i64) {
    let phase = pod.str("status.phase");
    if is_set(pod, "metadata.deletionTimestamp") && !matches!(phase, "Failed" | "Succeeded") {
        w.field("Status", format!("Terminating (lasts {})", age(pod.str("metadata.deletionTimestamp"), now)));
        w.field("Termination Grace Period", format!("{}s", int(pod, "metadata.deletionGracePeriodSeconds")));
    } else {
        w.field("Status", phase);
    }
    optional(w, pod, &[("Reason", "status.reason"), ("Message", "status.message")]);
}

fn addresses(w: &mut Writer, pod: &Tree) {
    let addresses = pod.list("status.podIPs");
    if addresses.is_empty() {
        return w.field("IPs", "<none>");
    }
    w.write(0, "IPs:\n");
    for address in addresses {
        put!(w, 1, "IP:\t{}\n", address.str("ip"));
    }
}

fn all_containers(w: &mut Writer, pod: &Tree) {
    for (title, spec, status) in [
        ("Init Containers", "spec.initContainers", "status.initContainerStatuses"),
        ("Containers", "spec.containers", "status.containerStatuses"),
        ("Ephemeral Containers", "spec.ephemeralContainers", "status.ephemeralContainerStatuses"),
    ] {
        if title == "Containers" || !pod.list(spec).is_empty() {
            containers::describe(w, title, pod.list(spec), pod.list(status), Some(pod), "");
        }
    }
}

fn conditions(w: &mut Writer, pod: &Tree) {
    let conditions = pod.list("status.conditions");
    let gates = pod.list("spec.readinessGates");
    if !gates.is_empty() {
        w.write(0, "Readiness Gates:\n  Type\tStatus\n");
    }
    for gate in gates {
        let kind = gate.str("conditionType");
        let status = conditions.iter().find(|condition| condition.str("type") == kind);
        put!(w, 1, "{kind} \t{} \n", status.map_or("<none>", |status| status.str("status")));
    }
    if !conditions.is_empty() {
        w.write(0, "Conditions:\n  Type\tStatus\n");
    }
    for condition in conditions {
        put!(w, 1, "{} \t{} \n", condition.str("type"), condition.str("status"));
    }
}

pub(super) fn tolerations(w: &mut Writer, title: &str, tolerations: &[Tree]) {
    let mut sorted: Vec<&Tree> = tolerations.iter().collect();
    sorted.sort_by_key(|toleration| toleration.str("key"));
    w.multiline("", title, sorted.into_iter().map(toleration).collect());
}

fn toleration(toleration: &Tree) -> String {
    let (key, value, effect) = (toleration.str("key"), toleration.str("value"), toleration.str("effect"));
    let mut out = key.to_string();
    if !value.is_empty() {
        out.push_str(&format!("={value}"));
    }
    if !effect.is_empty() {
        out.push_str(&format!(":{effect}"));
    }
    if toleration.str("operator") == "Exists" && value.is_empty() {
        out.push_str(if key.is_empty() && effect.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if is_set(toleration, "tolerationSeconds") {
        out.push_str(&format!(" for {}s", int(toleration, "tolerationSeconds")));
    }
    out
}

fn spread(w: &mut Writer, constraints: &[Tree], before: &str) {
    if constraints.is_empty() {
        return;
    }
    let mut sorted: Vec<&Tree> = constraints.iter().collect();
    sorted.sort_by_key(|constraint| constraint.str("topologyKey"));
    put!(w, 0, "{before}Topology Spread Constraints:\t");
    for (at, constraint) in sorted.into_iter().enumerate() {
        if at > 0 {
            put!(w, 0, "{before}\t");
        }
        let (key, when) = (constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"));
        put!(w, 0, "{key}:{when} when max skew {} is exceeded", int(constraint, "maxSkew"));
        if is_set(constraint, "labelSelector") {
            put!(w, 0, " for selector {}", format_selector(constraint.at("labelSelector")));
        }
        w.write(0, "\n");
    }
}

/// The template of a workload.
pub(super) fn template(w: &mut Writer, template: &Tree) {
    w.write(0, "Pod Template:\n");
    if template.is_null() {
        return w.write(1, "<unset>");
    }
    w.labels("  Labels", template.map("metadata.labels"));
    if !template.map("metadata.annotations").is_empty() {
        w.annotations("  Annotations", template.map("metadata.annotations"));
    }
    let spec = template.at("spec");
    if !spec.str("serviceAccountName").is_empty() {
        put!(w, 1, "Service Account:\t{}\n", spec.str("serviceAccountName"));
    }
    if !spec.list("initContainers").is_empty() {
        containers::describe(w, "Init Containers", spec.list("initContainers"), &[], None, "  ");
    }
    containers::describe(w, "Containers", spec.list("containers"), &[], None, "  ");
    volumes::describe(w, spec.list("volumes"), "  ");
    spread(w, spec.list("topologySpreadConstraints"), "  ");
    if !spec.str("priorityClassName").is_empty() {
        put!(w, 1, "Priority Class Name:\t{}\n", spec.str("priorityClassName"));
    }
    w.labels("  Node-Selectors", spec.map("nodeSelector"));
    tolerations(w, "  Tolerations", spec.list("tolerations"));
}
