//! The node's conditions, in upstream's words, and events about their changes.

use api::time::{Timestamp, format_seconds};
use api::{Tree, tree};

use super::status_input::{Health, Network, StatusInput};

/// An event about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Event {
    /// `Node a status is now: NodeReady`.
    pub(crate) fn now(node: &str, reason: &'static str) -> Event {
        Event { is_warning: false, reason, message: format!("Node {node} status is now: {reason}") }
    }
}

struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
    event: &'static str,
}

/// Pressure by kind: reason, message and event with pressure, and without.
const PRESSURES: [(&str, [&str; 3], [&str; 3]); 3] = [
    (
        "MemoryPressure",
        ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"],
        ["KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"],
    ),
    (
        "DiskPressure",
        ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
        ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
    ),
    (
        "PIDPressure",
        ["KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"],
        ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
    ),
];

/// The message of a node that shuts down.
const GOES_DOWN: &str = "node is shutting down";

const NEEDED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// The conditions, after existing ones, which keep their positions. `capacity` is the node's.
pub(crate) fn conditions(
    node: &str,
    input: &StatusInput,
    capacity: &[&str],
    isolates_storage: bool,
    (previous, now): (&[Tree], Timestamp),
) -> (Vec<Tree>, Vec<Event>) {
    let (mut conditions, mut events) = (previous.to_vec(), Vec::new());
    let reports = &input.reports;
    let pressures = [reports.memory_pressure, reports.disk_pressure, reports.pid_pressure];
    let missing = NEEDED.iter().copied().filter(|name| !capacity.contains(name));
    let missing = missing.filter(|name| isolates_storage || *name != "ephemeral-storage").collect();
    let mut all: Vec<Condition> =
        PRESSURES.iter().zip(pressures).map(|(texts, holds)| pressure(texts, holds)).collect();
    all.push(ready(input, missing));
    for condition in all {
        let is_new = put(&mut conditions, &condition, now);
        // A new node has no event about becoming ready.
        if is_new.is_some_and(|is_first| !is_first || condition.kind != "Ready") {
            events.push(Event::now(node, condition.event));
        }
    }
    (conditions, events)
}

fn pressure((kind, some, none): &(&'static str, [&'static str; 3], [&'static str; 3]), holds: bool) -> Condition {
    let [reason, message, event] = *(if holds { some } else { none });
    Condition { kind, holds, reason, message: message.to_string(), event }
}

/// All reasons at once why pods cannot be run here.
fn ready(input: &StatusInput, missing: Vec<&str>) -> Condition {
    let mut problems: Vec<String> = Vec::new();
    match &input.runtime.health {
        Health::Unknown => problems.push("container runtime status check may not have completed yet".to_string()),
        Health::Down => problems.push("container runtime is down".to_string()),
        Health::NotReady(why) => problems.push(format!("container runtime not ready: {why}")),
        Health::Ready => {}
    }
    problems.extend(input.reports.runtime_silence.clone());
    match &input.runtime.network {
        Network::Unknown => problems.push("network state unknown".to_string()),
        Network::NotReady(why) => problems.push(format!("container runtime network not ready: {why}")),
        Network::Ready => {}
    }
    if input.reports.shutting_down {
        problems.push(GOES_DOWN.to_string());
    }
    if !missing.is_empty() {
        problems.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let message = match problems.as_slice() {
        [] => "kubelet is posting ready status".to_string(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let holds = problems.is_empty();
    let (reason, event) = if holds { ("KubeletReady", "NodeReady") } else { ("KubeletNotReady", "NodeNotReady") };
    Condition { kind: "Ready", holds, reason, message, event }
}

/// Whether the node reports that it shuts down.
pub(crate) fn is_shutting_down(node: &Tree) -> bool {
    let mut ready = node.list("status.conditions").iter().filter(|condition| condition.str("type") == "Ready");
    ready.any(|condition| condition.str("status") == "False" && condition.str("message").contains(GOES_DOWN))
}

/// Sets a condition. Returns None if it is unchanged; otherwise whether it is new.
fn put(conditions: &mut Vec<Tree>, condition: &Condition, now: Timestamp) -> Option<bool> {
    let now = format_seconds(now.seconds);
    let status = if condition.holds { "True" } else { "False" };
    let place = conditions.iter().position(|other| other.str("type") == condition.kind);
    let old = place.map(|at| &conditions[at]);
    let same = old.filter(|old| old.str("status") == status);
    let since = same.map_or_else(|| now.clone(), |old| old.str("lastTransitionTime").into());
    let turned = same.is_none().then_some(old.is_none());
    let made = tree! {
        "type" => condition.kind, "status" => status, "lastHeartbeatTime" => now, "lastTransitionTime" => since,
        "reason" => condition.reason, "message" => condition.message.as_str(),
    };
    match place {
        Some(at) => conditions[at] = made,
        None => conditions.push(made),
    }
    turned
}
