//! Containers that prepare, one after the other, and those among them that stay beside the others.

use api::Tree;

use super::restart::Restart;
use super::{Plan, View, is_started, plan_ended, reason_to_end, start, start_after_kill, start_when_due};
use crate::model::pod;
use crate::model::state::{PodState, Stage};

pub enum Outcome {
    /// The main containers may start.
    Done,
    Waits,
    /// One has failed for good.
    Failed,
}

pub fn plan(view: &View<'_>, plan: &mut Plan) -> Outcome {
    let is_initialized = has_begun(view.pod, view.state);
    for spec in view.pod.list("spec.initContainers") {
        let outcome = match (pod::is_sidecar(spec), is_initialized) {
            (true, _) => plan_sidecar(view, spec, is_initialized, plan),
            (false, true) => Outcome::Done,
            (false, false) => plan_one(view, spec, plan),
        };
        if !matches!(outcome, Outcome::Done) {
            return outcome;
        }
    }
    Outcome::Done
}

/// Main containers were there in this sandbox, so that all that prepares was done.
fn has_begun(pod: &Tree, state: &PodState) -> bool {
    pod.list("spec.containers").iter().any(|spec| state.active(spec.str("name")).is_some())
}

fn plan_one(view: &View<'_>, spec: &Tree, plan: &mut Plan) -> Outcome {
    let Some(seen) = view.state.active(spec.str("name")) else {
        plan.starts.push(start(view, spec));
        return Outcome::Waits;
    };
    if seen.is_running() {
        return Outcome::Waits;
    }
    if seen.succeeded() {
        return Outcome::Done;
    }
    if seen.stage == Stage::Exited && !Restart::after_init(view.pod, spec, seen.exit_code) {
        return Outcome::Failed;
    }
    plan_ended(view, spec, seen, plan);
    Outcome::Waits
}

fn plan_sidecar(view: &View<'_>, spec: &Tree, is_initialized: bool, plan: &mut Plan) -> Outcome {
    let goes_on = |started: bool| if started || is_initialized { Outcome::Done } else { Outcome::Waits };
    let Some(seen) = view.state.active(spec.str("name")) else {
        start_when_due(view, spec, plan);
        return goes_on(false);
    };
    if !seen.is_running() {
        start_when_due(view, spec, plan);
        return goes_on(false);
    }
    if let Some(kill) = reason_to_end(view, spec, seen) {
        plan.kills.push(kill);
        start_after_kill(view, spec, plan);
        return goes_on(false);
    }
    goes_on(is_started(spec, seen, (view.verdicts)(&seen.id)))
}
