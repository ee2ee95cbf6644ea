//! The simulation of one container: its next status from its last status and the time.

use std::time::Duration;

use api::{Tree, time, tree};
use stdx::backoff::pause_after;

use super::options::SimulationOptions;

/// The pause before the second restart of a container.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause before a container is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The exit code of a container that is terminated: 128 and the signal.
pub(super) const TERMINATED: i64 = 143;

/// Whether a container that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(super) fn of(pod: &Tree) -> Restart {
        match pod.str("spec.restartPolicy") {
            "Never" => Restart::Never,
            "OnFailure" => Restart::OnFailure,
            _ => Restart::Always,
        }
    }

    fn after(self, code: i64) -> bool {
        self == Restart::Always || self == Restart::OnFailure && code != 0
    }
}

/// The simulated state of a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Container {
    pub status: Tree,
    /// The exit code, if the container is not restarted.
    pub ended: Option<i64>,
    /// The time of the next change, in seconds of the wall clock.
    pub next: Option<i64>,
}

pub(super) struct ContainerSimulator<'a> {
    pub options: SimulationOptions,
    pub restart: Restart,
    pub pod_uid: &'a str,
    pub now: i64,
}

impl ContainerSimulator<'_> {
    /// The next state of a container with the status `seen`, which is null before its start.
    pub(super) fn advance(&self, spec: &Tree, seen: &Tree) -> Container {
        let state = seen.at("state");
        if state.has("running") {
            return self.continue_running(spec, seen);
        }
        let ended = if state.has("terminated") { state.at("terminated") } else { seen.at("lastState.terminated") };
        if ended.is_null() {
            return self.start_container(spec, 0, None);
        }
        let code = ended.int("exitCode").unwrap_or(0);
        if !self.restart.after(code) {
            return Container { status: seen.clone(), ended: Some(code), next: None };
        }
        let restarts = seen.int("restartCount").unwrap_or(0);
        let due = seconds(ended.str("finishedAt")) + restart_pause(restarts);
        if self.now >= due {
            return self.start_container(spec, restarts + 1, Some(ended));
        }
        self.back_off(spec, restarts, ended, due)
    }

    fn continue_running(&self, spec: &Tree, seen: &Tree) -> Container {
        let started = seconds(seen.str("state.running.startedAt"));
        if let Some((run_seconds, code)) = self.options.end
            && self.now >= started + run_seconds
        {
            let status = self.terminate(seen, code);
            let ended = (!self.restart.after(code)).then_some(code);
            return Container {
                status,
                ended,
                next: Some(self.now + restart_pause(seen.int("restartCount").unwrap_or(0))),
            };
        }
        let mut status = seen.clone();
        let ready_at = self.options.ready_seconds.map(|seconds| started + seconds);
        status.set("ready", ready_at.is_some_and(|at| self.now >= at));
        status.set("image", spec.str("image"));
        let end_at = self.options.end.map(|(seconds, _)| started + seconds);
        let next = [ready_at, end_at].into_iter().flatten().filter(|at| *at > self.now).min();
        Container { status, ended: None, next }
    }

    fn start_container(&self, spec: &Tree, restarts: i64, last: Option<&Tree>) -> Container {
        let mut status = self.status(spec, restarts);
        status.set("state", tree! { "running" => tree! { "startedAt" => time::format_seconds(self.now) } });
        status.set("lastState", last.map_or_else(Tree::map_new, |last| tree! { "terminated" => last.clone() }));
        status.set("started", true);
        self.continue_running(spec, &status.clone())
    }

    fn back_off(&self, spec: &Tree, restarts: i64, ended: &Tree, due: i64) -> Container {
        let mut status = self.status(spec, restarts);
        let message =
            format!("back-off {} restarting failed container={}", human(restart_pause(restarts)), spec.str("name"));
        let waiting = tree! { "reason" => "CrashLoopBackOff", "message" => message };
        status.set("state", tree! { "waiting" => waiting });
        status.set("lastState", tree! { "terminated" => ended.clone() });
        status.set("started", false);
        Container { status, ended: None, next: Some(due) }
    }

    fn status(&self, spec: &Tree, restarts: i64) -> Tree {
        tree! {
            "name" => spec.str("name"),
            "image" => spec.str("image"),
            "imageID" => format!("fake://{}", spec.str("image")),
            "containerID" => format!("fake://{}-{}-{restarts}", self.pod_uid, spec.str("name")),
            "ready" => false,
            "restartCount" => restarts,
        }
    }

    /// The status of a container that terminates now.
    pub(super) fn terminate(&self, seen: &Tree, code: i64) -> Tree {
        let mut status = seen.clone();
        let started = seen.str("state.running.startedAt");
        let started = if started.is_empty() { time::format_seconds(self.now) } else { started.into() };
        let terminated = tree! {
            "exitCode" => code,
            "reason" => if code == 0 { "Completed" } else { "Error" },
            "startedAt" => started,
            "finishedAt" => time::format_seconds(self.now),
            "containerID" => seen.str("containerID"),
        };
        status.set("state", tree! { "terminated" => terminated });
        status.set("ready", false);
        status.set("started", false);
        status
    }

    /// The status of an init container that has completed.
    pub(super) fn completed(&self, spec: &Tree) -> Tree {
        let mut status = self.terminate(&self.status(spec, 0), 0);
        status.set("lastState", Tree::map_new());
        status.set("ready", true);
        status
    }
}

/// The first restart has no pause; later pauses double.
fn restart_pause(restarts: i64) -> i64 {
    let Ok(failures @ 1..) = u32::try_from(restarts) else { return 0 };
    pause_after(failures, FIRST_PAUSE, LONGEST_PAUSE).as_secs() as i64
}

fn human(seconds: i64) -> String {
    api::time::format_duration(seconds * 1_000_000_000)
}

pub(super) fn seconds(text: &str) -> i64 {
    time::parse(text).map_or(0, |time| time.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulator(end: Option<(i64, i64)>, restart: Restart, now: i64) -> ContainerSimulator<'static> {
        let options = SimulationOptions { end, ready_seconds: Some(2), stop_seconds: 0 };
        ContainerSimulator { options, restart, pod_uid: "u", now }
    }

    fn show(container: &Container) -> String {
        let state = container.status.at("state");
        let text = match (state.get("running"), state.get("waiting"), state.get("terminated")) {
            (Some(_), ..) => "running".to_string(),
            (_, Some(waiting), _) => waiting.str("message").to_string(),
            (.., Some(ended)) => format!("ended {}", ended.int("exitCode").unwrap_or(-1)),
            _ => "nothing".to_string(),
        };
        let ready = if container.status.bool("ready") { " ready" } else { "" };
        let restarts = container.status.int("restartCount").unwrap_or(-1);
        let ended = container.ended.map_or(String::new(), |code| format!(" for good with {code}"));
        let next = container.next.map_or(String::new(), |at| format!(", next at {at}"));
        format!("{text}{ready}, {restarts} restarts{ended}{next}")
    }

    /// Goes from step to step, as the times say.
    fn run(end: Option<(i64, i64)>, restart: Restart, steps: usize) -> Vec<String> {
        let spec = tree! { "name" => "c", "image" => "i" };
        let (mut seen, mut now, mut told) = (Tree::Null, 100, Vec::new());
        for _ in 0..steps {
            let container = simulator(end, restart, now).advance(&spec, &seen);
            told.push(show(&container));
            now = container.next.unwrap_or(now);
            seen = container.status;
        }
        told
    }

    #[test]
    fn containers_run_and_are_ready_in_time() {
        assert_eq!(
            run(None, Restart::Always, 3),
            ["running, 0 restarts, next at 102", "running ready, 0 restarts", "running ready, 0 restarts"]
        );
    }

    #[test]
    fn containers_that_end_are_done_or_come_back_later_and_later() {
        assert_eq!(
            run(Some((1, 3)), Restart::Never, 3),
            [
                "running, 0 restarts, next at 101",
                "ended 3, 0 restarts for good with 3, next at 101",
                "ended 3, 0 restarts for good with 3"
            ]
        );
        assert_eq!(run(Some((1, 0)), Restart::OnFailure, 3)[2], "ended 0, 0 restarts for good with 0");
        assert_eq!(
            run(Some((1, 1)), Restart::OnFailure, 8),
            [
                "running, 0 restarts, next at 101",
                "ended 1, 0 restarts, next at 101",
                "running, 1 restarts, next at 102",
                "ended 1, 1 restarts, next at 112",
                "running, 2 restarts, next at 113",
                "ended 1, 2 restarts, next at 133",
                "running, 3 restarts, next at 134",
                "ended 1, 3 restarts, next at 174",
            ]
        );
        let spec = tree! { "name" => "c", "image" => "i" };
        let seen = run_until_ended(&spec);
        let waits = simulator(Some((1, 1)), Restart::Always, 104).advance(&spec, &seen);
        assert_eq!(show(&waits), "back-off 10s restarting failed container=c, 1 restarts, next at 112");
        let again = simulator(Some((1, 1)), Restart::Always, 105).advance(&spec, &waits.status);
        assert_eq!(again, waits, "nothing changes while it waits");
        assert_eq!(restart_pause(60), LONGEST_PAUSE.as_secs() as i64);
    }

    /// The status of a container that has ended for the second time, at 102.
    fn run_until_ended(spec: &Tree) -> Tree {
        let mut seen = Tree::Null;
        for now in [100, 101, 101, 102] {
            seen = simulator(Some((1, 1)), Restart::Always, now).advance(spec, &seen).status;
        }
        seen
    }
}
