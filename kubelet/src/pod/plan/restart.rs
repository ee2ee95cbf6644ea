//! Whether a container that has ended is started again.

use api::Tree;

use crate::model::pod;
use crate::model::state::{PodState, Stage};

/// The feature that the node declares.
pub(crate) const FEATURE: &str = "RestartAllContainersOnContainerExits";
const ALL: &str = "RestartAllContainers";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    /// A container's own policy, or that of its pod.
    pub(crate) fn of(pod: &Tree, container: &Tree) -> Restart {
        let own = container.str("restartPolicy");
        match if own.is_empty() { pod.str("spec.restartPolicy") } else { own } {
            "Never" => Restart::Never,
            "OnFailure" => Restart::OnFailure,
            _ => Restart::Always,
        }
    }

    /// Whether a container is restarted after this exit code.
    pub(crate) fn after(pod: &Tree, container: &Tree, code: i32) -> bool {
        if pod::is_deleted(pod) {
            return false;
        }
        if let Some(rule) = rule(container, code) {
            return rule.str("action").starts_with("Restart");
        }
        match Restart::of(pod, container) {
            Restart::Always => true,
            Restart::OnFailure => code != 0,
            Restart::Never => false,
        }
    }

    /// Whether an init container is restarted: never after a success, whatever the pod's policy.
    pub(crate) fn after_init(pod: &Tree, container: &Tree, code: i32) -> bool {
        if pod::is_sidecar(container) {
            return !pod::is_deleted(pod);
        }
        code != 0 && Restart::after(pod, container, code)
    }
}

/// Whether a rule of the pod may begin a new round of all its containers.
pub(crate) fn may_restart_all_containers(pod: &Tree) -> bool {
    counted(pod).any(|spec| spec.list("restartPolicyRules").iter().any(|rule| rule.str("action") == ALL))
}

/// When a container exit has last restarted all containers of the pod; 0 if none did.
pub(crate) fn round(pod: &Tree, state: &PodState) -> i64 {
    let last_restart = |spec: &Tree| {
        let ended = state.containers.iter().filter(|seen| seen.name == spec.str("name") && seen.stage == Stage::Exited);
        let restarts_all = |code| rule(spec, code).is_some_and(|rule| rule.str("action") == ALL);
        ended.filter(|seen| restarts_all(seen.exit_code)).map(|seen| seen.finished_at).max()
    };
    counted(pod).filter_map(last_restart).max().unwrap_or(0)
}

/// The containers that are restarted together in a round.
fn counted(pod: &Tree) -> impl Iterator<Item = &Tree> {
    pod.list("spec.initContainers").iter().chain(pod.list("spec.containers"))
}

fn rule(container: &Tree, code: i32) -> Option<&Tree> {
    container.list("restartPolicyRules").iter().find(|rule| matches(rule, code))
}

fn matches(rule: &Tree, code: i32) -> bool {
    let codes = rule.at("exitCodes");
    let listed = codes.list("values").iter().any(|value| value.as_int() == Some(i64::from(code)));
    match codes.str("operator") {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}
