//! What is to be done about a pod now: decided from the pod, what the runtime has of it, what its probes say and
//! the time. Nothing here acts.

pub mod backoff;
mod init;
pub mod restart;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::Tree;

use crate::model::last_status::Past;
use crate::model::pod;
use crate::model::state::{Container, PodState, Stage};
pub use backoff::Backoffs;
use restart::Restart;

/// What a probe has found last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// None where there is no such probe, or it has not said anything yet.
    pub startup: Option<bool>,
    pub liveness: Option<bool>,
    pub readiness: Option<bool>,
}

/// What a decision is made from.
pub struct View<'a> {
    pub pod: &'a Tree,
    pub state: &'a PodState,
    /// By the container's id.
    pub verdicts: &'a dyn Fn(&str) -> Verdicts,
    /// Containers that only get what they were given when they are started again.
    pub resized: &'a BTreeSet<String>,
    pub backoffs: &'a Backoffs,
    /// Nanoseconds since the epoch.
    pub now: i64,
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// All that runs has to end, and the sandbox with it.
    pub kill_pod: bool,
    /// The sandbox to be made, by its number.
    pub sandbox: Option<u32>,
    pub kills: Vec<Kill>,
    /// Containers to be started, in order.
    pub starts: Vec<Start>,
    /// Containers that wait before they are started again, and until when.
    pub waits: Vec<Wait>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Kill {
    pub id: String,
    pub name: String,
    pub message: String,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is not what it should be.
    Changed,
    /// The probe of this field has asked for it: its grace period may be its own.
    Probe(&'static str),
    /// All containers begin anew: nobody is asked to get ready for it.
    Round,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub name: String,
    pub restarts: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub name: String,
    /// Nanoseconds since the epoch.
    pub until: i64,
    pub pause_seconds: i64,
}

impl Plan {
    pub fn is_nothing(&self) -> bool {
        *self == Plan::default()
    }
}

/// What has to be done about a pod that shall run.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(attempt) = wanted_sandbox(view) {
        plan_anew(view, attempt, &mut plan);
        return plan;
    }
    plan.kills = of_before(view.pod, view.state).map(make_room).collect();
    if !plan.kills.is_empty() {
        return plan;
    }
    plan_ephemeral(view, &mut plan);
    match init::plan(view, &mut plan) {
        init::Outcome::Done => {}
        init::Outcome::Waits => return plan,
        init::Outcome::Failed => {
            plan.kill_pod = true;
            return plan;
        }
    }
    let main = view.pod.list("spec.containers");
    let mut kept = 0;
    for spec in main {
        kept += usize::from(plan_container(view, spec, &mut plan));
    }
    let is_main = |name: &str| main.iter().any(|spec| spec.str("name") == name);
    let goes_on =
        plan.starts.iter().any(|start| is_main(&start.name)) || plan.waits.iter().any(|wait| is_main(&wait.name));
    if kept == 0 && !goes_on {
        // What stands beside the others has nobody left to stand by.
        return Plan { kill_pod: true, kills: plan.kills, ..Plan::default() };
    }
    plan
}

/// Containers that run still and have to make room for a new round of all.
pub fn of_before<'a>(pod: &'a Tree, state: &'a PodState) -> impl Iterator<Item = &'a Container> {
    let is_ephemeral = |name: &str| pod.list("spec.ephemeralContainers").iter().any(|spec| spec.str("name") == name);
    state.running().filter(move |seen| state.is_of_before(seen) && !is_ephemeral(&seen.name))
}

fn make_room(seen: &Container) -> Kill {
    let message = format!("Container {} is restarted with all others of its pod", seen.name);
    Kill { id: seen.id.clone(), name: seen.name.clone(), message, why: Why::Round }
}

/// The number of the sandbox that has to be made; None where the one that is there will do.
fn wanted_sandbox(view: &View<'_>) -> Option<u32> {
    let Some(newest) = view.state.sandbox() else { return Some(0) };
    let ready = view.state.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let on_host = view.pod.bool("spec.hostNetwork");
    let is_good =
        ready == 1 && newest.is_ready && newest.on_host_network == on_host && (on_host || !newest.addresses.is_empty());
    (!is_good).then_some(newest.attempt + 1)
}

/// The pod has no sandbox that works: everything begins from the start, if anything is left to be done.
fn plan_anew(view: &View<'_>, attempt: u32, plan: &mut Plan) {
    let left: Vec<&Tree> = view.pod.list("spec.containers").iter().filter(|spec| is_left(view, spec)).collect();
    let is_done = left.is_empty() || is_over(view, attempt);
    plan.kill_pod = is_done || !view.state.sandboxes.is_empty();
    if is_done {
        return;
    }
    plan.sandbox = Some(attempt);
    let inits = view.pod.list("spec.initContainers");
    let first = inits.iter().take(1);
    let rest = left.into_iter().filter(|_| inits.is_empty());
    plan.starts = first.chain(rest).map(|spec| start(view, spec)).collect();
}

/// A pod that does not start anything again has had its one life.
fn is_over(view: &View<'_>, attempt: u32) -> bool {
    let main = view.pod.list("spec.containers");
    let never = |spec: &Tree| Restart::of(view.pod, spec) == Restart::Never;
    let has_begun = attempt > 0 && !view.state.containers.is_empty();
    main.iter().all(never) && (has_begun || main.iter().any(|spec| forgotten_code(view, spec).is_some()))
}

fn is_left(view: &View<'_>, spec: &Tree) -> bool {
    let code = match view.state.container(spec.str("name")) {
        Some(seen) => (seen.stage == Stage::Exited && !view.state.is_of_before(seen)).then_some(seen.exit_code),
        None => forgotten_code(view, spec),
    };
    code.is_none_or(|code| Restart::after(view.pod, spec, code))
}

/// How a container counts as ended that was started once and of which the runtime knows nothing any more.
fn forgotten_code(view: &View<'_>, spec: &Tree) -> Option<i32> {
    let name = spec.str("name");
    let is_known = view.state.container(name).is_some();
    Past::of(view.pod, name).filter(|_| !is_known).and_then(Past::code)
}

fn start(view: &View<'_>, spec: &Tree) -> Start {
    let name = spec.str("name");
    // One that was made and never started, because whoever made it was ended, is made again as if it had not been.
    let seen = view.state.container(name).map(|seen| seen.restarts + i64::from(seen.stage != Stage::Created));
    let restarts = seen.or_else(|| Past::of(view.pod, name).map(Past::next)).unwrap_or(0);
    Start { name: name.to_string(), restarts }
}

/// Started once, never again.
fn plan_ephemeral(view: &View<'_>, plan: &mut Plan) {
    for spec in view.pod.list("spec.ephemeralContainers") {
        let is_made = view.state.container(spec.str("name")).is_some_and(|seen| seen.stage != Stage::Created);
        if !is_made && forgotten_code(view, spec).is_none() {
            plan.starts.push(start(view, spec));
        }
    }
}

/// Whether a container goes on as it is.
fn plan_container(view: &View<'_>, spec: &Tree, plan: &mut Plan) -> bool {
    let Some(seen) = view.state.active(spec.str("name")) else {
        if is_left(view, spec) {
            start_when_due(view, spec, plan);
        }
        return false;
    };
    if !seen.is_running() {
        return plan_ended(view, spec, seen, plan);
    }
    match reason_to_end(view, spec, seen) {
        None => true,
        Some(mut kill) => {
            let restarts = Restart::after(view.pod, spec, 137);
            if !restarts {
                kill.message.truncate(kill.message.trim_end_matches(", will be restarted").len());
            }
            plan.kills.push(kill);
            if restarts {
                start_after_kill(view, spec, plan);
            }
            false
        }
    }
}

/// A container that is not running: started again where that is due. Whether it holds the pod up.
fn plan_ended(view: &View<'_>, spec: &Tree, seen: &Container, plan: &mut Plan) -> bool {
    match seen.stage {
        Stage::Exited if !Restart::after(view.pod, spec, seen.exit_code) => false,
        Stage::Unknown => {
            let message = format!("Container {} is in unknown state, try killing it before restart", seen.name);
            plan.kills.push(Kill { id: seen.id.clone(), name: seen.name.clone(), message, why: Why::Changed });
            start_when_due(view, spec, plan)
        }
        _ => start_when_due(view, spec, plan),
    }
}

/// True where it has to wait, which holds the pod up.
fn start_when_due(view: &View<'_>, spec: &Tree, plan: &mut Plan) -> bool {
    let name = spec.str("name");
    let ended = view.state.container(name).filter(|seen| seen.stage == Stage::Exited);
    let wait = ended.and_then(|seen| view.backoffs.wait(name, seen.finished_at, view.now));
    match wait {
        Some(wait) => {
            plan.waits.push(wait);
            true
        }
        None => {
            plan.starts.push(start(view, spec));
            false
        }
    }
}

/// It ends now, and is started again like one that has ended by itself.
fn start_after_kill(view: &View<'_>, spec: &Tree, plan: &mut Plan) {
    match view.backoffs.wait(spec.str("name"), view.now, view.now) {
        Some(wait) => plan.waits.push(wait),
        None => plan.starts.push(start(view, spec)),
    }
}

/// Why a container that runs must not run on.
fn reason_to_end(view: &View<'_>, spec: &Tree, seen: &Container) -> Option<Kill> {
    let kill = |message: String, why| Some(Kill { id: seen.id.clone(), name: seen.name.clone(), message, why });
    let name = &seen.name;
    if !seen.hash.is_empty() && seen.hash != hash(spec) {
        return kill(format!("Container {name} definition changed, will be restarted"), Why::Changed);
    }
    if view.resized.contains(name) {
        return kill(format!("Container {name} resize requires restart"), Why::Changed);
    }
    let verdicts = (view.verdicts)(&seen.id);
    if verdicts.liveness == Some(false) {
        return kill(format!("Container {name} failed liveness probe, will be restarted"), Why::Probe("livenessProbe"));
    }
    if verdicts.startup == Some(false) {
        return kill(format!("Container {name} failed startup probe, will be restarted"), Why::Probe("startupProbe"));
    }
    None
}

/// Changes with what cannot change in a container that runs.
pub fn hash(container: &Tree) -> String {
    let parts = [container.str("name"), container.str("image")];
    let sum = stdx::fnv::fnv1a_32(parts.iter().flat_map(|part| part.bytes().chain([0])));
    format!("{sum:x}")
}

/// Whether a container is started: it runs, and its startup probe, if it has one, has succeeded.
pub fn is_started(spec: &Tree, seen: &Container, verdicts: Verdicts) -> bool {
    seen.is_running() && (!spec.has("startupProbe") || verdicts.startup == Some(true))
}

/// The lists in which a container may stand; ephemeral ones do not count for the pod's life.
pub fn sidecars(pod: &Tree) -> impl Iterator<Item = &Tree> {
    pod.list("spec.initContainers").iter().filter(|spec| pod::is_sidecar(spec))
}
