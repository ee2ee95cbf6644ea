//! The statuses of containers: the current state and the last one.

use api::{Tree, time, tree};

use super::{View, counts, is_ready};
use crate::model::last_status::{self, LastStatus};
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::state::{Container, Stage};
use crate::pod::cri_config::container::signal_name;
use crate::pod::plan::is_started;
use crate::pod::plan::restart::Restart;

const SECOND: i64 = 1_000_000_000;
const USED_TO_RUN: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";

/// The statuses by the three lists of containers.
pub(crate) struct Containers([Vec<Tree>; 3]);

impl Containers {
    pub(crate) fn of(view: &View<'_>) -> Containers {
        let list = |at: usize| view.pod.list(pod::LISTS[at]).iter().map(|spec| one(view, spec, at)).collect();
        Containers([list(0), list(1), list(2)])
    }

    pub(crate) fn lists(self) -> [(&'static str, Vec<Tree>); 3] {
        let [init, main, ephemeral] = self.0;
        [("initContainerStatuses", init), ("containerStatuses", main), ("ephemeralContainerStatuses", ephemeral)]
    }

    pub(crate) fn init(&self) -> &[Tree] {
        &self.0[0]
    }

    pub(crate) fn main(&self) -> &[Tree] {
        &self.0[1]
    }

    /// The names of the main containers and sidecars that are not ready.
    pub(crate) fn unready(&self, pod: &Tree) -> Vec<&str> {
        let of = |at: usize| pod.list(pod::LISTS[at]).iter().zip(&self.0[at]).map(move |pair| (pair, at == 0));
        let counted =
            of(0).chain(of(1)).filter(|((spec, status), is_init)| counts(spec, *is_init) && !status.bool("ready"));
        counted.map(|((_, status), _)| status.str("name")).collect()
    }

    /// The names of the init containers that are not complete.
    pub(crate) fn incomplete(&self, pod: &Tree) -> Vec<&str> {
        if self.main().iter().any(|status| !status.at("state").has("waiting")) {
            return Vec::new();
        }
        let pairs = pod.list(pod::LISTS[0]).iter().zip(self.init());
        let is_done = |spec: &Tree, status: &Tree| match pod::is_sidecar(spec) {
            true => status.bool("started"),
            false => status.at("state.terminated").int("exitCode") == Some(0),
        };
        pairs.filter(|(spec, status)| !is_done(spec, status)).map(|(_, status)| status.str("name")).collect()
    }
}

fn one(view: &View<'_>, spec: &Tree, list: usize) -> Tree {
    let name = spec.str("name");
    let Some(seen) = view.state.container(name) else { return missing_container_status(view, spec, list) };
    let verdicts = (view.verdicts)(&seen.id);
    let begins_anew = seen.stage == Stage::Exited && view.state.is_before_restart(seen) && !view.is_over && list < 2;
    let mut status = tree! {
        "name" => name,
        "image" => if seen.image.is_empty() { spec.str("image") } else { seen.image.as_str() },
        "imageID" => seen.image_id.as_str(),
        "containerID" => format!("{}://{}", view.runtime, seen.id),
        "restartCount" => seen.restarts,
        "started" => is_started(spec, seen, verdicts),
        "ready" => ready(spec, seen, list, begins_anew, verdicts),
    };
    let ended = (seen.stage == Stage::Exited).then(|| terminated(view, seen));
    let previous = view.state.previous(name).filter(|seen| seen.stage == Stage::Exited);
    let anew = begins_anew.then(|| waits(begins(view.pod), ""));
    let waiting = waiting(view, name).filter(|_| !seen.is_running()).or(anew);
    let (state, last) = match (waiting, ended) {
        (Some(waiting), ended) => (waiting, ended.or_else(|| previous.map(|seen| terminated(view, seen)))),
        (None, Some(ended)) => (tree! { "terminated" => ended }, previous.map(|seen| terminated(view, seen))),
        (None, None) => (now(view.pod, seen), previous.map(|seen| terminated(view, seen))),
    };
    status.set("state", state);
    status.set("lastState", last.map_or_else(Tree::map_new, |last| tree! { "terminated" => last }));
    add_details(spec, seen, &mut status);
    status
}

/// An init container is ready once it has completed.
fn ready(spec: &Tree, seen: &Container, list: usize, begins_anew: bool, verdicts: crate::pod::plan::Verdicts) -> bool {
    match list {
        0 if !pod::is_sidecar(spec) => seen.succeeded() && !begins_anew,
        2 => false,
        _ => is_ready(spec, seen, verdicts),
    }
}

fn now(pod: &Tree, seen: &Container) -> Tree {
    match seen.stage {
        Stage::Running => tree! { "running" => tree! { "startedAt" => at(seen.started_at) } },
        Stage::Created => waits(begins(pod), ""),
        _ => waits("ContainerStatusUnknown", ""),
    }
}

fn waits(reason: &str, message: &str) -> Tree {
    let mut waiting = tree! { "reason" => reason };
    if !message.is_empty() {
        waiting.set("message", message);
    }
    tree! { "waiting" => waiting }
}

/// The reason why a container that should run is waiting.
fn waiting(view: &View<'_>, name: &str) -> Option<Tree> {
    if view.is_over {
        return None;
    }
    if let Some(Problem { reason, message }) = view.problems.get(name) {
        return Some(waits(reason, message));
    }
    let wait = view.backoffs.iter().find(|wait| wait.name == name)?;
    let pod = view.pod;
    let message = format!(
        "back-off {} restarting failed container={name} pod={}_{}({})",
        time::format_duration(wait.pause_seconds * SECOND),
        pod::name(pod),
        pod::namespace(pod),
        pod::uid(pod)
    );
    Some(waits("CrashLoopBackOff", &message))
}

fn terminated(view: &View<'_>, seen: &Container) -> Tree {
    let reason = match (seen.reason.as_str(), seen.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    let mut ended = tree! {
        "exitCode" => i64::from(seen.exit_code),
        "reason" => reason,
        "startedAt" => at(seen.started_at),
        "finishedAt" => at(seen.finished_at),
        "containerID" => format!("{}://{}", view.runtime, seen.id),
    };
    let message = if seen.message.is_empty() {
        last_termination_message(view.pod, ended.str("containerID"))
    } else {
        &seen.message
    };
    if !message.is_empty() {
        ended.set("message", message);
    }
    ended
}

/// The termination message of a container whose directory was removed: the pod's status has it.
fn last_termination_message<'a>(pod: &'a Tree, id: &str) -> &'a str {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().flat_map(|list| pod.at("status").list(list));
    let mut ends = statuses.flat_map(|status| [status.at("state.terminated"), status.at("lastState.terminated")]);
    ends.find(|ended| ended.str("containerID") == id).map_or("", |ended| ended.str("message"))
}

fn at(nanos: i64) -> api::Str {
    time::format_seconds(nanos.div_euclid(SECOND))
}

/// The status of a container that the runtime does not have: not yet, or not any more.
fn missing_container_status(view: &View<'_>, spec: &Tree, list: usize) -> Tree {
    let name = spec.str("name");
    let (old, past) = (last_status::status(view.pod, name), LastStatus::of(view.pod, name));
    let is_over =
        view.is_over || past.and_then(LastStatus::code).is_some_and(|code| !restarts(view.pod, spec, list, code));
    match (old, past) {
        (Some(old), Some(LastStatus::Lost { .. })) if is_over => return unobserved_termination(old),
        (Some(old), Some(LastStatus::Ended { .. })) if is_over || old.at("state").has("terminated") => {
            return last_termination(old);
        }
        _ => {}
    }
    let last = match past {
        Some(LastStatus::Lost { .. }) => tree! { "terminated" => unknown_termination(USED_TO_RUN) },
        _ => old.map_or_else(Tree::map_new, |old| old.at("lastState").clone()),
    };
    tree! {
        "name" => name,
        "image" => spec.str("image"),
        "imageID" => "",
        "restartCount" => past.map_or(0, LastStatus::next),
        "started" => false,
        "ready" => false,
        "state" => waiting(view, name).unwrap_or_else(|| waits(begins(view.pod), "")),
        "lastState" => last,
    }
}

/// Whether a container that has exited with this code is restarted.
fn restarts(pod: &Tree, spec: &Tree, list: usize, code: i32) -> bool {
    match list {
        0 => Restart::after_init(pod, spec, code),
        1 => Restart::after(pod, spec, code),
        _ => false,
    }
}

/// The reason of a container that has not been created yet, including init containers.
pub(crate) fn begins(pod: &Tree) -> &'static str {
    if pod.list(pod::LISTS[0]).is_empty() { "ContainerCreating" } else { "PodInitializing" }
}

/// A container that had exited in its last status, even if it waited for its restart then.
fn last_termination(old: &Tree) -> Tree {
    let mut status = old.clone();
    if old.at("state").has("waiting") {
        status.set("state", old.at("lastState").clone());
    }
    status
}

/// The container ran once, and its end was not observed.
fn unobserved_termination(old: &Tree) -> Tree {
    let mut status = old.clone();
    status.set(
        "state",
        tree! { "terminated" => unknown_termination("The container could not be located when the pod was terminated") },
    );
    status.set("ready", false);
    status.set("started", false);
    status
}

fn unknown_termination(message: &str) -> Tree {
    tree! {
        "exitCode" => i64::from(last_status::UNSEEN_CODE),
        "reason" => "ContainerStatusUnknown",
        "message" => message,
        "startedAt" => Tree::Null,
        "finishedAt" => Tree::Null,
    }
}

/// Adds the values that the container was actually created with.
fn add_details(spec: &Tree, seen: &Container, status: &mut Tree) {
    let resources = spec.at("resources");
    if resources.as_map().is_some_and(|map| !map.is_empty()) {
        status.set("resources", resources.clone());
        if resources.has("requests") {
            status.set("allocatedResources", resources.at("requests").clone());
        }
    }
    let mounts: Vec<Tree> = spec.list("volumeMounts").iter().map(mount).collect();
    if !mounts.is_empty() {
        status.set("volumeMounts", mounts);
    }
    // Upstream reports it for all containers if its alpha gate is on, and for none if it is off.
    if let Some(signal) = signal_name(seen.stop_signal).filter(|_| spec.at("lifecycle").has("stopSignal")) {
        status.set("stopSignal", signal);
    }
    if let Some(user) = &seen.user {
        let groups: Vec<Tree> = user.supplemental_groups.iter().map(|group| Tree::from(*group)).collect();
        let user = tree! { "uid" => user.uid, "gid" => user.gid, "supplementalGroups" => groups };
        status.set("user", tree! { "linux" => user });
    }
}

fn mount(spec: &Tree) -> Tree {
    let mut mount = tree! { "name" => spec.str("name"), "mountPath" => spec.str("mountPath") };
    if spec.bool("readOnly") {
        mount.set("readOnly", true);
        let recursive = spec.str("recursiveReadOnly");
        mount.set("recursiveReadOnly", if recursive.is_empty() { "Disabled" } else { recursive });
    }
    mount
}
