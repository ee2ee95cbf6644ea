//! Init containers, which run one after the other, and sidecars, which run on beside the main containers.

use api::Tree;

use super::draft::Draft;
use super::restart::Restart;
use super::{View, is_started, plan_ended, reason_to_stop, start, start_after_stop, start_when_due};
use crate::model::pod;
use crate::model::state::{PodState, Stage};

pub(crate) enum Outcome {
    /// The main containers may start.
    Done,
    Waits,
    /// An init container has failed and is not restarted.
    Failed,
}

pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) -> Outcome {
    let is_initialized = has_started_main_containers(view.pod, view.state);
    for spec in view.pod.list("spec.initContainers") {
        let outcome = match (pod::is_sidecar(spec), is_initialized) {
            (true, _) => plan_sidecar(view, spec, is_initialized, draft),
            (false, true) => Outcome::Done,
            (false, false) => plan_one(view, spec, draft),
        };
        if !matches!(outcome, Outcome::Done) {
            return outcome;
        }
    }
    Outcome::Done
}

/// Main containers exist in this sandbox, so that the init containers have completed.
fn has_started_main_containers(pod: &Tree, state: &PodState) -> bool {
    pod.list("spec.containers").iter().any(|spec| state.active(spec.str("name")).is_some())
}

fn plan_one(view: &View<'_>, spec: &Tree, draft: &mut Draft) -> Outcome {
    let Some(seen) = view.state.active(spec.str("name")) else {
        draft.starts.push(start(view, spec));
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
    plan_ended(view, spec, seen, draft);
    Outcome::Waits
}

fn plan_sidecar(view: &View<'_>, spec: &Tree, is_initialized: bool, draft: &mut Draft) -> Outcome {
    let goes_on = |started: bool| if started || is_initialized { Outcome::Done } else { Outcome::Waits };
    let Some(seen) = view.state.active(spec.str("name")) else {
        start_when_due(view, spec, draft);
        return goes_on(false);
    };
    if !seen.is_running() {
        start_when_due(view, spec, draft);
        return goes_on(false);
    }
    if let Some(stop) = reason_to_stop(view, spec, seen) {
        draft.stops.push(stop);
        start_after_stop(view, spec, draft);
        return goes_on(false);
    }
    goes_on(is_started(spec, seen, (view.verdicts)(&seen.id)))
}
