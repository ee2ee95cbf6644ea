//! Decides what a pod needs now, from the pod, the runtime's state, probe results and the time. The decision is a list
//! of commands in the order in which the worker carries them out. Nothing here does I/O.

pub(crate) mod backoff;
mod draft;
mod init;
pub(crate) mod restart;
pub(crate) mod stop;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::Tree;

use crate::model::last_status::LastStatus;
use crate::model::pod;
use crate::model::state::{Container, PodState, Stage};
pub(crate) use backoff::Backoffs;
use draft::Draft;
use restart::Restart;

/// The last results of a container's probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdicts {
    /// None if there is no such probe, or if it has no result yet.
    pub(crate) startup: Option<bool>,
    pub(crate) liveness: Option<bool>,
    pub(crate) readiness: Option<bool>,
}

/// The input of a decision.
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Tree,
    pub(crate) state: &'a PodState,
    /// By container ID.
    pub(crate) verdicts: &'a dyn Fn(&str) -> Verdicts,
    /// Containers whose resize needs a restart.
    pub(crate) resized: &'a BTreeSet<String>,
    pub(crate) backoffs: &'a Backoffs,
    /// The number after the highest number of a container's log files.
    pub(crate) next_log: &'a dyn Fn(&str) -> i64,
    /// Nanoseconds since the epoch.
    pub(crate) now: i64,
}

/// One step of a pod sync.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// A crashed container is not restarted yet.
    Backoff(RestartBackoff),
    StopContainer(StopContainer),
    /// Read the pod's state again, because the next command must not see containers that were stopped.
    ReadState,
    /// The pod has completed: stop what is left of it, and report its final status.
    FinishPod,
    EnsureCgroup,
    /// Apply resizes that need no restart.
    ResizeContainers,
    PrepareVolumes,
    /// Stop all containers and sandboxes, because the pod needs a new sandbox.
    StopSandboxes,
    CreateSandbox {
        attempt: u32,
    },
    StartContainer(StartContainer),
}

/// A container to be stopped while its pod keeps running.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StopContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The text of the event.
    pub(crate) message: String,
    /// None for the pod's grace period.
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) runs_pre_stop: bool,
}

/// A container to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartContainer {
    pub(crate) name: String,
    pub(crate) restarts: i64,
    /// Containers that were created and never started. They block their successor, which gets the same number.
    pub(crate) unstarted: Vec<String>,
    /// Stopped containers to be removed after the start: only the last one is kept.
    pub(crate) older: Vec<String>,
    /// The effect of the start on the container's backoff.
    pub(crate) crash: Crash,
}

/// Whether a start follows a crash, which makes the next backoff longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// A first start, or the runtime has lost the container, for example in a reboot.
    None,
    /// The container exited by itself at this time.
    At(i64),
    /// The kubelet stops it in the same plan.
    Now,
}

/// A container that waits before it is restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestartBackoff {
    pub(crate) name: String,
    /// Nanoseconds since the epoch.
    pub(crate) until: i64,
    pub(crate) pause_seconds: i64,
}

/// Commands in the order in which they are carried out.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) commands: Vec<Command>,
}

impl Plan {
    /// Containers that wait before they are restarted.
    pub(crate) fn backoffs(&self) -> impl Iterator<Item = &RestartBackoff> {
        self.commands.iter().filter_map(|command| match command {
            Command::Backoff(backoff) => Some(backoff),
            _ => None,
        })
    }

    /// Whether a container is started.
    pub(crate) fn starts(&self, name: &str) -> bool {
        self.commands.iter().any(|command| matches!(command, Command::StartContainer(start) if start.name == name))
    }

    /// Whether the plan starts or stops anything in the runtime.
    pub(crate) fn changes_runtime(&self) -> bool {
        self.commands.iter().any(Command::changes_runtime)
    }
}

impl Command {
    fn changes_runtime(&self) -> bool {
        match self {
            Command::StopContainer(_)
            | Command::FinishPod
            | Command::StopSandboxes
            | Command::CreateSandbox { .. }
            | Command::StartContainer(_) => true,
            Command::Backoff(_)
            | Command::ReadState
            | Command::EnsureCgroup
            | Command::ResizeContainers
            | Command::PrepareVolumes => false,
        }
    }
}

/// Decides what has to be done for a pod that should run.
pub(crate) fn plan(view: &View<'_>) -> Plan {
    match needed_sandbox(view) {
        Some(attempt) => plan_sandbox(view, attempt),
        None => plan_containers(view),
    }
}

/// The pod has a working sandbox.
fn plan_containers(view: &View<'_>) -> Plan {
    let stops = of_before(view.pod, view.state).map(stop_for_new_round).collect();
    let mut draft = Draft { stops, ..Draft::default() };
    if !draft.stops.is_empty() {
        return draft.run();
    }
    plan_ephemeral(view, &mut draft);
    match init::plan(view, &mut draft) {
        init::Outcome::Done => plan_main(view, draft),
        init::Outcome::Waits => draft.run(),
        init::Outcome::Failed => draft.finish(),
    }
}

fn plan_main(view: &View<'_>, mut draft: Draft) -> Plan {
    let main = view.pod.list("spec.containers");
    let mut kept = 0;
    for spec in main {
        kept += usize::from(plan_container(view, spec, &mut draft));
    }
    let continues = kept > 0 || main.iter().any(|spec| draft.continues(spec.str("name")));
    if continues {
        return draft.run();
    }
    // Sidecars do not outlive the main containers.
    Draft { stops: draft.stops, ..Draft::default() }.finish()
}

/// Running containers that are stopped before all containers of the pod are restarted.
pub(crate) fn of_before<'a>(pod: &'a Tree, state: &'a PodState) -> impl Iterator<Item = &'a Container> {
    let is_ephemeral = |name: &str| pod.list("spec.ephemeralContainers").iter().any(|spec| spec.str("name") == name);
    state.running().filter(move |seen| state.is_before_restart(seen) && !is_ephemeral(&seen.name))
}

fn stop_for_new_round(seen: &Container) -> StopContainer {
    let message = format!("Container {} is restarted with all others of its pod", seen.name);
    StopContainer { runs_pre_stop: false, ..stop(seen, message) }
}

fn stop(seen: &Container, message: String) -> StopContainer {
    StopContainer { id: seen.id.clone(), name: seen.name.clone(), message, grace_seconds: None, runs_pre_stop: true }
}

/// The number of the sandbox to create; None if the existing one can be used.
fn needed_sandbox(view: &View<'_>) -> Option<u32> {
    let Some(newest) = view.state.sandbox() else { return Some(0) };
    let ready = view.state.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let on_host = view.pod.bool("spec.hostNetwork");
    let is_good =
        ready == 1 && newest.is_ready && newest.on_host_network == on_host && (on_host || !newest.addresses.is_empty());
    (!is_good).then_some(newest.attempt + 1)
}

/// The pod has no working sandbox: it starts from the beginning, unless it has completed.
fn plan_sandbox(view: &View<'_>, attempt: u32) -> Plan {
    let left: Vec<&Tree> = view.pod.list("spec.containers").iter().filter(|spec| is_left(view, spec)).collect();
    if left.is_empty() || is_over(view, attempt) {
        return Draft::default().finish();
    }
    let inits = view.pod.list("spec.initContainers");
    let first = inits.iter().take(1);
    let rest = left.into_iter().filter(|_| inits.is_empty());
    let starts = first.chain(rest).map(|spec| start(view, spec)).collect();
    Draft { starts, ..Draft::default() }.run_in_new_sandbox(attempt, !view.state.sandboxes.is_empty())
}

/// A pod without restarts is over once it has started.
fn is_over(view: &View<'_>, attempt: u32) -> bool {
    let main = view.pod.list("spec.containers");
    let never = |spec: &Tree| Restart::of(view.pod, spec) == Restart::Never;
    let has_begun = attempt > 0 && !view.state.containers.is_empty();
    main.iter().all(never) && (has_begun || main.iter().any(|spec| forgotten_code(view, spec).is_some()))
}

fn is_left(view: &View<'_>, spec: &Tree) -> bool {
    let code = match view.state.container(spec.str("name")) {
        Some(seen) => (seen.stage == Stage::Exited && !view.state.is_before_restart(seen)).then_some(seen.exit_code),
        None => forgotten_code(view, spec),
    };
    code.is_none_or(|code| Restart::after(view.pod, spec, code))
}

/// The exit code to assume for a container that was started once and that the runtime does not have any more.
fn forgotten_code(view: &View<'_>, spec: &Tree) -> Option<i32> {
    let name = spec.str("name");
    let is_known = view.state.container(name).is_some();
    LastStatus::of(view.pod, name).filter(|_| !is_known).and_then(LastStatus::code)
}

fn start(view: &View<'_>, spec: &Tree) -> StartContainer {
    let name = spec.str("name");
    let restarts = restarts(view, name);
    let all = || view.state.containers.iter().filter(|seen| seen.name == name);
    StartContainer {
        name: name.to_string(),
        restarts,
        unstarted: all().filter(|seen| seen.stage == Stage::Created).map(|seen| seen.id.clone()).collect(),
        older: all().filter(|seen| !seen.is_running()).skip(1).map(|seen| seen.id.clone()).collect(),
        crash: match view.state.container(name).filter(|_| restarts > 0) {
            Some(seen) if seen.stage == Stage::Exited => Crash::At(seen.finished_at),
            Some(_) => Crash::Now,
            None => Crash::None,
        },
    }
}

/// How often a container was started before.
fn restarts(view: &View<'_>, name: &str) -> i64 {
    if let Some(seen) = view.state.container(name) {
        // A container that was created and never started, because the kubelet was stopped in between, does not count.
        return seen.restarts + i64::from(seen.stage != Stage::Created);
    }
    let reported = LastStatus::of(view.pod, name).map_or(0, LastStatus::next);
    match pod::is_static(view.pod) {
        // A static pod has no status with restart counts; its log files have them.
        true => reported.max((view.next_log)(name)),
        false => reported,
    }
}

/// Ephemeral containers are started once and never restarted.
fn plan_ephemeral(view: &View<'_>, draft: &mut Draft) {
    for spec in view.pod.list("spec.ephemeralContainers") {
        let was_started = view.state.container(spec.str("name")).is_some_and(|seen| seen.stage != Stage::Created);
        if !was_started && forgotten_code(view, spec).is_none() {
            draft.starts.push(start(view, spec));
        }
    }
}

/// Whether a container keeps the pod running.
fn plan_container(view: &View<'_>, spec: &Tree, draft: &mut Draft) -> bool {
    let Some(seen) = view.state.active(spec.str("name")) else {
        if is_left(view, spec) {
            start_when_due(view, spec, draft);
        }
        return false;
    };
    if !seen.is_running() {
        return plan_ended(view, spec, seen, draft);
    }
    let Some(stop) = reason_to_stop(view, spec, seen) else { return true };
    plan_stop(view, spec, stop, draft);
    false
}

/// Stops a running container, and restarts it if its policy allows.
fn plan_stop(view: &View<'_>, spec: &Tree, mut stop: StopContainer, draft: &mut Draft) {
    let restarts = Restart::after(view.pod, spec, 137);
    if !restarts {
        stop.message.truncate(stop.message.trim_end_matches(", will be restarted").len());
    }
    draft.stops.push(stop);
    if restarts {
        start_after_stop(view, spec, draft);
    }
}

/// Restarts a container that is not running where that is due. Whether it keeps the pod running.
fn plan_ended(view: &View<'_>, spec: &Tree, seen: &Container, draft: &mut Draft) -> bool {
    match seen.stage {
        Stage::Exited if !Restart::after(view.pod, spec, seen.exit_code) => false,
        Stage::Unknown => {
            let message = format!("Container {} is in unknown state, try killing it before restart", seen.name);
            draft.stops.push(stop(seen, message));
            start_when_due(view, spec, draft)
        }
        _ => start_when_due(view, spec, draft),
    }
}

/// True if the container has to wait, which keeps the pod running.
fn start_when_due(view: &View<'_>, spec: &Tree, draft: &mut Draft) -> bool {
    let name = spec.str("name");
    let ended = view.state.container(name).filter(|seen| seen.stage == Stage::Exited);
    let backoff = ended.and_then(|seen| view.backoffs.wait(name, seen.finished_at, view.now));
    let waits = backoff.is_some();
    start_or_wait(view, spec, backoff, draft);
    waits
}

/// A container that is stopped now is restarted like one that has exited by itself.
fn start_after_stop(view: &View<'_>, spec: &Tree, draft: &mut Draft) {
    let backoff = view.backoffs.wait(spec.str("name"), view.now, view.now);
    start_or_wait(view, spec, backoff, draft);
}

fn start_or_wait(view: &View<'_>, spec: &Tree, backoff: Option<RestartBackoff>, draft: &mut Draft) {
    match backoff {
        Some(backoff) => draft.backoffs.push(backoff),
        None => draft.starts.push(start(view, spec)),
    }
}

/// Why a running container has to be stopped.
fn reason_to_stop(view: &View<'_>, spec: &Tree, seen: &Container) -> Option<StopContainer> {
    let name = &seen.name;
    if !seen.hash.is_empty() && seen.hash != hash(spec) {
        return Some(stop(seen, format!("Container {name} definition changed, will be restarted")));
    }
    if view.resized.contains(name) {
        return Some(stop(seen, format!("Container {name} resize requires restart")));
    }
    let (field, probe) = failed_probe((view.verdicts)(&seen.id))?;
    // A probe can have its own grace period.
    let grace_seconds = spec.at(field).int("terminationGracePeriodSeconds");
    let message = format!("Container {name} failed {probe} probe, will be restarted");
    Some(StopContainer { grace_seconds, ..stop(seen, message) })
}

/// The field and the name of a probe whose failure stops the container.
fn failed_probe(verdicts: Verdicts) -> Option<(&'static str, &'static str)> {
    match verdicts {
        Verdicts { liveness: Some(false), .. } => Some(("livenessProbe", "liveness")),
        Verdicts { startup: Some(false), .. } => Some(("startupProbe", "startup")),
        _ => None,
    }
}

/// Changes if a field changes that cannot change in a running container.
pub(crate) fn hash(container: &Tree) -> String {
    let parts = [container.str("name"), container.str("image")];
    let sum = stdx::fnv::fnv1a_32(parts.iter().flat_map(|part| part.bytes().chain([0])));
    format!("{sum:x}")
}

/// Whether a container has started: it runs, and its startup probe, if it has one, has succeeded.
pub(crate) fn is_started(spec: &Tree, seen: &Container, verdicts: Verdicts) -> bool {
    seen.is_running() && (!spec.has("startupProbe") || verdicts.startup == Some(true))
}

/// Init containers that run beside the main containers.
pub(crate) fn sidecars(pod: &Tree) -> impl Iterator<Item = &Tree> {
    pod.list("spec.initContainers").iter().filter(|spec| pod::is_sidecar(spec))
}
