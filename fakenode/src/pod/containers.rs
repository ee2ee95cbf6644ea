//! How one container goes on: from what its status says it did last, and the time.

use api::{Tree, time, tree};

use super::behaviour::Behaviour;

/// The longest pause before a container is started again.
const LONGEST_PAUSE: i64 = 300;
/// What a container ends with that is told to: 128 and the signal.
pub const TERMINATED: i64 = 143;

/// Whether a container that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub fn of(pod: &Tree) -> Restart {
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

/// A container in the middle of its life.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    pub status: Tree,
    /// The code of one that has ended for good.
    pub ended: Option<i64>,
    /// When it has to be looked at again, in seconds of the wall clock.
    pub next: Option<i64>,
}

pub struct Life<'a> {
    pub behaviour: Behaviour,
    pub restart: Restart,
    pub pod_uid: &'a str,
    pub now: i64,
}

impl Life<'_> {
    /// What becomes of a container whose status was `seen`, or that has none yet.
    pub fn go_on(&self, spec: &Tree, seen: &Tree) -> Container {
        let state = seen.at("state");
        if state.has("running") {
            return self.run_on(spec, seen);
        }
        let ended = if state.has("terminated") { state.at("terminated") } else { seen.at("lastState.terminated") };
        if ended.is_null() {
            return self.begin(spec, 0, None);
        }
        let code = ended.int("exitCode").unwrap_or(0);
        if !self.restart.after(code) {
            return Container { status: seen.clone(), ended: Some(code), next: None };
        }
        let restarts = seen.int("restartCount").unwrap_or(0);
        let due = seconds(ended.str("finishedAt")) + pause(restarts);
        if self.now >= due {
            return self.begin(spec, restarts + 1, Some(ended));
        }
        self.back_off(spec, restarts, ended, due)
    }

    fn run_on(&self, spec: &Tree, seen: &Tree) -> Container {
        let started = seconds(seen.str("state.running.startedAt"));
        if let Some((run_seconds, code)) = self.behaviour.end
            && self.now >= started + run_seconds
        {
            let status = self.end(seen, code);
            let ended = (!self.restart.after(code)).then_some(code);
            return Container { status, ended, next: Some(self.now + pause(seen.int("restartCount").unwrap_or(0))) };
        }
        let mut status = seen.clone();
        let ready_at = self.behaviour.ready_seconds.map(|seconds| started + seconds);
        status.set("ready", ready_at.is_some_and(|at| self.now >= at));
        status.set("image", spec.str("image"));
        let end_at = self.behaviour.end.map(|(seconds, _)| started + seconds);
        let next = [ready_at, end_at].into_iter().flatten().filter(|at| *at > self.now).min();
        Container { status, ended: None, next }
    }

    fn begin(&self, spec: &Tree, restarts: i64, last: Option<&Tree>) -> Container {
        let mut status = self.status(spec, restarts);
        status.set("state", tree! { "running" => tree! { "startedAt" => time::format_seconds(self.now) } });
        status.set("lastState", last.map_or_else(Tree::map_new, |last| tree! { "terminated" => last.clone() }));
        status.set("started", true);
        self.run_on(spec, &status.clone())
    }

    fn back_off(&self, spec: &Tree, restarts: i64, ended: &Tree, due: i64) -> Container {
        let mut status = self.status(spec, restarts);
        let message = format!("back-off {} restarting failed container={}", human(pause(restarts)), spec.str("name"));
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

    /// A container that was there, ended now.
    pub fn end(&self, seen: &Tree, code: i64) -> Tree {
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

    /// An init container that has done its work.
    pub fn completed(&self, spec: &Tree) -> Tree {
        let mut status = self.end(&self.status(spec, 0), 0);
        status.set("lastState", Tree::map_new());
        status.set("ready", true);
        status
    }
}

/// The first restart comes at once, the next ones later and later.
fn pause(restarts: i64) -> i64 {
    match restarts {
        0 => 0,
        more => 10_i64.saturating_mul(1 << (more - 1).min(10)).min(LONGEST_PAUSE),
    }
}

fn human(seconds: i64) -> String {
    api::time::format_duration(seconds * 1_000_000_000)
}

pub fn seconds(text: &str) -> i64 {
    time::parse(text).map_or(0, |time| time.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(end: Option<(i64, i64)>, restart: Restart, now: i64) -> Life<'static> {
        let behaviour = Behaviour { end, ready_seconds: Some(2), stop_seconds: 0 };
        Life { behaviour, restart, pod_uid: "u", now }
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
            let container = life(end, restart, now).go_on(&spec, &seen);
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
        let waits = life(Some((1, 1)), Restart::Always, 104).go_on(&spec, &seen);
        assert_eq!(show(&waits), "back-off 10s restarting failed container=c, 1 restarts, next at 112");
        let again = life(Some((1, 1)), Restart::Always, 105).go_on(&spec, &waits.status);
        assert_eq!(again, waits, "nothing changes while it waits");
        assert_eq!(pause(60), LONGEST_PAUSE);
    }

    /// The status of a container that has ended for the second time, at 102.
    fn run_until_ended(spec: &Tree) -> Tree {
        let mut seen = Tree::Null;
        for now in [100, 101, 101, 102] {
            seen = life(Some((1, 1)), Restart::Always, now).go_on(spec, &seen).status;
        }
        seen
    }
}
