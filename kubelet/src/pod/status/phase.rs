//! A pod's phase, from the statuses of its containers.

use api::Tree;

use super::View;
use super::containers::Containers;
use crate::model::pod;
use crate::pod::plan::restart::Restart;

pub(crate) fn of(view: &View<'_>, made: &Containers) -> &'static str {
    let pod = view.pod;
    if has_failed_init(pod, made) {
        return "Failed";
    }
    if is_restarting_all(view) {
        return "Running";
    }
    let main = made.main();
    let is = |what: &str| main.iter().filter(|status| status.at("state").has(what)).count();
    let ended_before = |status: &&Tree| status.at("state").has("waiting") && status.at("lastState").has("terminated");
    let waits = is("waiting") - main.iter().filter(ended_before).count();
    let running = is("running");
    let ended = is("terminated") + main.iter().filter(ended_before).count();
    if !made.incomplete(pod).is_empty() || waits > 0 {
        return "Pending";
    }
    match (running, ended) {
        (1.., _) => "Running",
        (0, 1..) => phase_of_terminated(view, made),
        _ => "Pending",
    }
}

/// All containers are stopped for a restart, and no main container of the new round has started yet.
fn is_restarting_all(view: &View<'_>) -> bool {
    let has_begun = |spec: &Tree| view.state.active(spec.str("name")).is_some();
    view.state.round > 0 && !view.is_over && !view.pod.list("spec.containers").iter().any(has_begun)
}

/// The phase without running containers: completed, or about to be restarted.
fn phase_of_terminated(view: &View<'_>, made: &Containers) -> &'static str {
    let pod = view.pod;
    let restarts = |spec: &Tree, status: &Tree| {
        let code = ended_code(status).and_then(|code| i32::try_from(code).ok()).unwrap_or(1);
        Restart::after(pod, spec, code)
    };
    let pairs = || pod.list("spec.containers").iter().zip(made.main());
    let will_go_on = pairs().any(|(spec, status)| restarts(spec, status)) && !view.is_over;
    let beside = pod.list("spec.initContainers").iter().zip(made.init());
    let sidecar_runs =
        beside.filter(|(spec, _)| pod::is_sidecar(spec)).any(|(_, status)| status.at("state").has("running"));
    if will_go_on || sidecar_runs {
        return "Running";
    }
    match pairs().all(|(_, status)| ended_code(status) == Some(0)) {
        true => "Succeeded",
        false => "Failed",
    }
}

fn ended_code(status: &Tree) -> Option<i64> {
    let state = status.at("state.terminated");
    if state.is_null() { status.at("lastState.terminated").int("exitCode") } else { state.int("exitCode") }
}

fn has_failed_init(pod: &Tree, made: &Containers) -> bool {
    if made.main().iter().any(|status| !status.at("state").has("waiting")) {
        return false;
    }
    let pairs = pod.list("spec.initContainers").iter().zip(made.init());
    let failed = |spec: &Tree, status: &Tree| {
        let code = status.at("state.terminated").int("exitCode").and_then(|code| i32::try_from(code).ok());
        code.is_some_and(|code| code != 0 && !Restart::after_init(pod, spec, code))
    };
    pairs.filter(|(spec, _)| !pod::is_sidecar(spec)).any(|(spec, status)| failed(spec, status))
}
