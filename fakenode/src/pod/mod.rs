//! Plans the next status update of a simulated pod from its object and the time. The plan keeps no
//! state besides the pod's status.

mod containers;
mod options;

use api::{Tree, time, tree};

use containers::{ContainerSimulator, Restart, TERMINATED, seconds};
use options::SimulationOptions;
use podmodel::conditions::{self, ConditionInputs};

/// The node of a pod.
pub(crate) struct Host<'a> {
    pub address: &'a str,
    /// The pod's own address there; None where the node is full.
    pub pod_address: Option<&'a str>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Nothing,
    /// A strategic merge patch of the status.
    Report(Tree),
    /// All containers have terminated: the object is deleted.
    Delete,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub step: Step,
    /// The time of the next sync, in seconds of the wall clock.
    pub next: Option<i64>,
}

impl Plan {
    const NOTHING: Plan = Plan { step: Step::Nothing, next: None };
}

pub(crate) fn plan(pod: &Tree, host: &Host<'_>, now: i64) -> Plan {
    if pod.at("metadata").has("deletionTimestamp") {
        return plan_end(pod, now);
    }
    if is_over(pod) {
        return Plan::NOTHING;
    }
    let options = match SimulationOptions::of(pod) {
        Ok(options) => options,
        Err(why) => return report(pod, fail(pod, now, "Annotation", &why.0), None),
    };
    if host.pod_address.is_none() {
        return report(pod, fail(pod, now, "OutOfpods", OUT_OF_PODS), None);
    }
    let deadline = deadline(pod);
    if deadline.is_some_and(|deadline| now >= deadline) {
        return report(pod, stopped(pod, now, "DeadlineExceeded", TOO_LONG), None);
    }
    let (status, next) = running_status(pod, host, options, now);
    report(pod, status, [next, deadline].into_iter().flatten().min())
}

const OUT_OF_PODS: &str = "Pod was rejected: Node didn't have enough resource: pods";
const TOO_LONG: &str = "Pod was active on the node longer than the specified deadline";

pub(crate) fn is_over(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

fn deadline(pod: &Tree) -> Option<i64> {
    let started = pod.str("status.startTime");
    let limit = pod.int("spec.activeDeadlineSeconds").filter(|_| !started.is_empty())?;
    Some(seconds(started).saturating_add(limit))
}

/// An equal status is not written again.
fn report(pod: &Tree, status: Tree, next: Option<i64>) -> Plan {
    let fields = status.as_map();
    if fields.is_some_and(|fields| fields.iter().all(|(key, value)| is_there(pod, key, value))) {
        return Plan { step: Step::Nothing, next };
    }
    let uid = pod.str("metadata.uid");
    Plan { step: Step::Report(tree! { "metadata" => tree! { "uid" => uid }, "status" => status }), next }
}

fn is_there(pod: &Tree, key: &str, value: &Tree) -> bool {
    let seen = pod.at("status").get(key).unwrap_or(&Tree::Null);
    match key {
        // Others have conditions of their own in the same list.
        "conditions" => value.as_list().unwrap_or(&[]).iter().all(|condition| {
            let old = seen.as_list().unwrap_or(&[]).iter().find(|old| old.str("type") == condition.str("type"));
            let fields = ["status", "reason", "message", "observedGeneration"];
            old.is_some_and(|old| fields.iter().all(|field| same_field(old.at(field), condition.at(field))))
        }),
        _ => seen == value,
    }
}

fn same_field(a: &Tree, b: &Tree) -> bool {
    let empty = |tree: &Tree| matches!(tree, Tree::Null | Tree::Int(0)) || tree.as_str() == Some("");
    a == b || empty(a) && empty(b)
}

/// The status of a pod that has not finished, and the time of its next change.
fn running_status(pod: &Tree, host: &Host<'_>, options: SimulationOptions, now: i64) -> (Tree, Option<i64>) {
    let simulator = ContainerSimulator { options, restart: Restart::of(pod), pod_uid: pod.str("metadata.uid"), now };
    let seen = |list: &str, name: &str| find(pod, list, name);
    let main: Vec<_> = pod
        .list("spec.containers")
        .iter()
        .map(|spec| simulator.advance(spec, seen("status.containerStatuses", spec.str("name"))))
        .collect();
    let codes: Option<Vec<i64>> = main.iter().map(|container| container.ended).collect();
    let phase = match &codes {
        None => "Running",
        Some(codes) if codes.iter().all(|code| *code == 0) => "Succeeded",
        Some(_) => "Failed",
    };
    let over = codes.is_some();
    let (inits, init_next) = init_containers(pod, &simulator, over);
    let extra: Vec<Tree> = ephemeral_containers(pod, &simulator, over);
    let next = main.iter().filter(|container| container.ended.is_none()).filter_map(|container| container.next);
    let next = next.chain(init_next).min().filter(|_| !over);
    let statuses: Vec<Tree> = main.into_iter().map(|container| container.status).collect();
    let unready = inits.iter().filter(|status| is_sidecar(pod, status.str("name"))).chain(&statuses);
    let unready = unready.filter(|status| !status.bool("ready")).map(|status| status.str("name")).collect();
    let facts = ConditionInputs { phase, unready, incomplete: Vec::new(), has_sandbox: !over, begins_anew: None, now };
    let conditions = conditions::conditions(pod, &facts);
    let mut status = base(pod, host, phase, now);
    status.set("conditions", conditions);
    status.set("containerStatuses", statuses);
    for (key, list) in [("initContainerStatuses", inits), ("ephemeralContainerStatuses", extra)] {
        if !list.is_empty() {
            status.set(key, list);
        }
    }
    (status, next)
}

fn base(pod: &Tree, host: &Host<'_>, phase: &str, now: i64) -> Tree {
    let started = pod.str("status.startTime");
    let address = if pod.bool("spec.hostNetwork") { host.address } else { host.pod_address.unwrap_or("") };
    let mut status = tree! {
        "phase" => phase,
        "startTime" => if started.is_empty() { time::format_seconds(now) } else { started.into() },
        "hostIP" => host.address,
        "hostIPs" => vec![tree! { "ip" => host.address }],
        "podIP" => address,
        "podIPs" => vec![tree! { "ip" => address }],
    };
    observe(pod, &mut status);
    status
}

fn observe(pod: &Tree, status: &mut Tree) {
    if let Some(generation) = pod.int("metadata.generation") {
        status.set("observedGeneration", generation);
    }
}

fn find<'a>(pod: &'a Tree, list: &str, name: &str) -> &'a Tree {
    static NONE: Tree = Tree::Null;
    pod.list(list).iter().find(|status| status.str("name") == name).unwrap_or(&NONE)
}

fn is_sidecar(pod: &Tree, name: &str) -> bool {
    find(pod, "spec.initContainers", name).str("restartPolicy") == "Always"
}

/// Regular init containers have completed; sidecars terminate after the main containers.
fn init_containers(pod: &Tree, simulator: &ContainerSimulator<'_>, over: bool) -> (Vec<Tree>, Option<i64>) {
    let runs_on = ContainerSimulator {
        options: SimulationOptions { end: None, ..simulator.options },
        restart: Restart::Always,
        ..*simulator
    };
    let mut next = None;
    let one = |spec: &Tree| {
        let seen = find(pod, "status.initContainerStatuses", spec.str("name"));
        if seen.is_null() && (over || spec.str("restartPolicy") != "Always") {
            return simulator.completed(spec);
        }
        if spec.str("restartPolicy") != "Always" {
            return seen.clone();
        }
        if over {
            return if seen.at("state").has("running") { simulator.terminate(seen, 0) } else { seen.clone() };
        }
        let container = runs_on.advance(spec, seen);
        next = [next, container.next].into_iter().flatten().min();
        container.status
    };
    let statuses = pod.list("spec.initContainers").iter().map(one).collect();
    (statuses, next)
}

fn ephemeral_containers(pod: &Tree, simulator: &ContainerSimulator<'_>, over: bool) -> Vec<Tree> {
    let once = ContainerSimulator {
        options: SimulationOptions { end: None, ..simulator.options },
        restart: Restart::Never,
        ..*simulator
    };
    let one = |spec: &Tree| {
        let seen = find(pod, "status.ephemeralContainerStatuses", spec.str("name"));
        if over && seen.at("state").has("running") {
            once.terminate(seen, TERMINATED)
        } else {
            once.advance(spec, seen).status
        }
    };
    pod.list("spec.ephemeralContainers").iter().map(one).collect()
}

/// Plans a deletion: containers first, then the object.
fn plan_end(pod: &Tree, now: i64) -> Plan {
    let grace = pod.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    let stop = SimulationOptions::of(pod).map_or(0, |options| options.stop_seconds);
    let due = seconds(pod.str("metadata.deletionTimestamp")) - grace + stop.min(grace);
    if now < due && !is_over(pod) {
        return Plan { step: Step::Nothing, next: Some(due) };
    }
    // Controllers that count finished pods have to see how it ended; pods that always restart are not counted.
    let counted = pod.str("spec.restartPolicy") != "Always" || !pod.list("metadata.finalizers").is_empty();
    if counted && !is_over(pod) {
        return report(pod, stopped(pod, now, "", ""), None);
    }
    // With no grace left finalizers keep it, which are not ours; or else the server ended between the last
    // mark and the deletion, and has to be asked again.
    let kept = grace == 0 && !pod.list("metadata.finalizers").is_empty();
    if kept { Plan::NOTHING } else { Plan { step: Step::Delete, next: None } }
}

/// The status of a pod that the node has rejected.
fn fail(pod: &Tree, now: i64, reason: &str, message: &str) -> Tree {
    let started = pod.str("status.startTime");
    let mut status = tree! {
        "phase" => "Failed",
        "reason" => reason,
        "message" => message,
        "startTime" => if started.is_empty() { time::format_seconds(now) } else { started.into() },
    };
    observe(pod, &mut status);
    status
}

/// The status of a pod whose containers were terminated.
fn stopped(pod: &Tree, now: i64, reason: &str, message: &str) -> Tree {
    let options = SimulationOptions { end: None, ready_seconds: None, stop_seconds: 0 };
    let simulator = ContainerSimulator { options, restart: Restart::Never, pod_uid: pod.str("metadata.uid"), now };
    let end = |status: &Tree| {
        let ended = status.at("state").has("terminated");
        if ended { status.clone() } else { simulator.terminate(status, TERMINATED) }
    };
    let mut status = tree! { "phase" => "Failed" };
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        let ended: Vec<Tree> = pod.at("status").list(list).iter().map(end).collect();
        if !ended.is_empty() {
            status.set(list, ended);
        }
    }
    for (key, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            status.set(key, text);
        }
    }
    let ended = ConditionInputs {
        phase: "Failed",
        unready: Vec::new(),
        incomplete: Vec::new(),
        has_sandbox: false,
        begins_anew: None,
        now,
    };
    status.set("conditions", conditions::conditions(pod, &ended));
    observe(pod, &mut status);
    status
}

#[cfg(test)]
mod tests;
