//! The status of a pod, from the runtime's state. Pure: earlier state is in the pod's status, or passed in.

mod containers;
mod phase;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Tree, time, tree};
use podmodel::conditions::{self, ConditionInputs};

use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::state::PodState;
use crate::pod::plan::{self, RestartBackoff, Verdicts};
use containers::Containers;
pub(crate) use containers::begins as initial_reason;

/// Why containers are waiting, by name.
pub(crate) type Problems = BTreeMap<String, Problem>;

/// The input of a status.
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Tree,
    pub(crate) state: &'a PodState,
    pub(crate) verdicts: &'a dyn Fn(&str) -> Verdicts,
    /// Containers that wait before they are restarted.
    pub(crate) backoffs: &'a [RestartBackoff],
    pub(crate) problems: &'a Problems,
    /// How the runtime calls itself, in front of container ids.
    pub(crate) runtime: &'a str,
    pub(crate) host_ips: &'a [IpAddr],
    /// Nothing of the pod will run again.
    pub(crate) is_over: bool,
    /// Why the node terminates the pod, if it does.
    pub(crate) ended: Option<&'a Problem>,
    /// Seconds since the epoch.
    pub(crate) now: i64,
}

pub(crate) fn status(view: &View<'_>) -> Tree {
    let pod = view.pod;
    if is_settled(view) {
        return kept(pod);
    }
    let made = Containers::of(view);
    let phase = match view.ended {
        // A final phase does not change.
        _ if pod::is_over(pod) => pod.str("status.phase"),
        Some(_) => "Failed",
        None => phase::of(view, &made),
    };
    let started = pod.str("status.startTime");
    let mut status = tree! {
        "phase" => phase,
        "startTime" => if started.is_empty() { time::format_seconds(view.now) } else { started.into() },
    };
    match view.ended {
        Some(ended) if !pod::is_over(pod) => {
            status.set("reason", &*ended.reason);
            status.set("message", ended.message.as_str());
        }
        // Reason and message explain the phase, and may have been set by an earlier kubelet.
        _ if phase == pod.str("status.phase") => keep(pod, &["reason", "message"], &mut status),
        _ => {}
    }
    if let Some(generation) = pod.int("metadata.generation") {
        status.set("observedGeneration", generation);
    }
    set_addresses(view, &mut status);
    status.set("conditions", conditions::conditions(pod, &facts(view, &made, phase)));
    for (key, list) in made.lists() {
        if !list.is_empty() {
            status.set(key, list);
        }
    }
    status
}

/// A pod that never ran here and has its final status, such as a rejected one.
fn is_settled(view: &View<'_>) -> bool {
    let state = view.state;
    let has_containers = view.pod.at("status").has("containerStatuses");
    pod::is_over(view.pod) && !has_containers && state.sandboxes.is_empty() && state.containers.is_empty()
}

/// The same status as before, without conditions, which other components write too.
fn kept(pod: &Tree) -> Tree {
    let mut status = tree! {};
    keep(pod, &writer::OWN, &mut status);
    if let Some(generation) = pod.int("metadata.generation") {
        status.set("observedGeneration", generation);
    }
    status
}

fn keep(pod: &Tree, keys: &[&str], status: &mut Tree) {
    let old = pod.at("status");
    keys.iter().filter_map(|key| Some((key, old.get(key)?))).for_each(|(key, value)| status.set(key, value.clone()));
}

fn facts<'a>(view: &View<'a>, made: &'a Containers, phase: &'a str) -> ConditionInputs<'a> {
    let is_over = matches!(phase, "Succeeded" | "Failed");
    let has_sandbox = view
        .state
        .sandbox()
        .is_some_and(|sandbox| sandbox.is_ready && (sandbox.on_host_network || !sandbox.addresses.is_empty()));
    ConditionInputs {
        phase,
        unready: made.unready(view.pod),
        incomplete: made.incomplete(view.pod),
        has_sandbox: has_sandbox && !is_over,
        begins_anew: plan::restart::may_restart_all_containers(view.pod)
            .then(|| plan::of_before(view.pod, view.state).next().is_some()),
        now: view.now,
    }
}

fn set_addresses(view: &View<'_>, status: &mut Tree) {
    let listed = |addresses: &[String]| -> Vec<Tree> {
        addresses.iter().map(|address| tree! { "ip" => address.as_str() }).collect()
    };
    let host: Vec<String> = view.host_ips.iter().map(IpAddr::to_string).collect();
    if let Some(first) = host.first() {
        status.set("hostIP", first.as_str());
        status.set("hostIPs", listed(&host));
    }
    let seen = view.state.sandbox().map(|sandbox| sandbox.addresses.clone()).unwrap_or_default();
    let own = if view.pod.bool("spec.hostNetwork") { host } else { seen };
    if let Some(first) = own.first() {
        status.set("podIP", first.as_str());
        status.set("podIPs", listed(&own));
    } else if view.pod.at("status").has("podIP") {
        // The sandbox does not exist any more, but its addresses are kept for clients that read the final status.
        status.set("podIP", view.pod.str("status.podIP"));
        status.set("podIPs", view.pod.list("status.podIPs").to_vec());
    }
}

/// A pod with its last reported status instead of its object's.
pub(crate) fn merged(object: &Tree, last: &Tree) -> Tree {
    let mut pod = object.clone();
    // Conditions of other components are only in the object.
    let own: Vec<Tree> = last.list("conditions").to_vec();
    let others = object
        .list("status.conditions")
        .iter()
        .filter(|condition| !own.iter().any(|own| own.str("type") == condition.str("type")));
    let conditions: Vec<Tree> = own.iter().cloned().chain(others.cloned()).collect();
    let status = pod.child("status");
    for (key, value) in last.as_map().into_iter().flat_map(|map| map.iter()) {
        status.set(key, value.clone());
    }
    status.set("conditions", conditions);
    // A controller may fail a pod too, for example on a node that was unreachable.
    if pod::is_over(object) {
        keep(object, &["phase", "reason", "message"], status);
    }
    pod
}

/// The status of a pod that the node rejects.
pub(crate) fn rejected(pod: &Tree, problem: &Problem, now: i64) -> Tree {
    let started = pod.str("status.startTime");
    let mut status = tree! {
        "phase" => "Failed",
        "reason" => &*problem.reason,
        "message" => format!("Pod was rejected: {}", problem.message),
        "startTime" => if started.is_empty() { time::format_seconds(now) } else { started.into() },
    };
    if let Some(generation) = pod.int("metadata.generation") {
        status.set("observedGeneration", generation);
    }
    status
}

/// The DisruptionTarget condition of a pod that the node terminates.
pub(crate) fn disruption(pod: &Tree, message: &str, now: i64) -> Tree {
    let mut condition = tree! {
        "type" => "DisruptionTarget", "status" => "True", "reason" => "TerminationByKubelet",
        "message" => message, "lastTransitionTime" => time::format_seconds(now),
    };
    if let Some(generation) = pod.int("metadata.generation") {
        condition.set("observedGeneration", generation);
    }
    condition
}

/// Whether a container counts for the readiness of its pod.
fn counts(spec: &Tree, is_init: bool) -> bool {
    !is_init || pod::is_sidecar(spec)
}

/// Whether a container is ready.
pub(crate) fn is_ready(spec: &Tree, seen: &crate::model::state::Container, verdicts: Verdicts) -> bool {
    plan::is_started(spec, seen, verdicts) && (!spec.has("readinessProbe") || verdicts.readiness == Some(true))
}
