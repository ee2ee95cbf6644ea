//! The table row of a pod: ready containers, and its status in one word.

use api::{Tree, time};

use super::conditions;
use crate::cells as shared;
use crate::podspec::resources::aggregate::is_restartable;

pub(super) fn cells(pod: &Tree, now: i64) -> Vec<Tree> {
    let summary = Summary::of(pod);
    vec![
        shared::name(pod),
        Tree::from(format!("{}/{}", summary.ready, summary.total)),
        Tree::from(summary.reason),
        Tree::from(restarts(summary.restarts, now)),
        shared::age(pod, now),
        Tree::from(pod.list("status.podIPs").first().map_or("<none>", |address| address.str("ip"))),
        shared::text_or(pod, "spec.nodeName", "<none>"),
        shared::text_or(pod, "status.nominatedNodeName", "<none>"),
        Tree::from(readiness_gates(pod)),
    ]
}

/// The number of restarts and the time of the last one, 0 if unknown.
#[derive(Debug, Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: i64,
}

impl Restarts {
    fn add(&mut self, status: &Tree) {
        self.count += status.int("restartCount").unwrap_or(0);
        if let Ok(time) = time::parse(status.str("lastState.terminated.finishedAt")) {
            self.last = self.last.max(time.seconds);
        }
    }
}

fn restarts(restarts: Restarts, now: i64) -> String {
    match restarts {
        Restarts { count, last } if count != 0 && last != 0 => {
            format!("{count} ({} ago)", time::human_duration(now - last))
        }
        Restarts { count, .. } => count.to_string(),
    }
}

struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Tree) -> Summary {
        let sidecars = pod.list("spec.initContainers").iter().filter(|init| is_restartable(init)).count();
        let total = pod.list("spec.containers").len() + sidecars;
        let mut summary = Summary { ready: 0, total, reason: first_reason(pod), restarts: Restarts::default() };
        let of_sidecars = summary.walk_init_containers(pod);
        if let Some(of_sidecars) = of_sidecars {
            summary.restarts = of_sidecars;
            summary.walk_containers(pod);
        }
        summary.note_deletion(pod);
        summary
    }

    /// Returns the restarts of sidecars if the pod is initialized.
    fn walk_init_containers(&mut self, pod: &Tree) -> Option<Restarts> {
        let inits = pod.list("spec.initContainers");
        let mut of_sidecars = Restarts::default();
        let mut initializing = false;
        for (index, status) in pod.list("status.initContainerStatuses").iter().enumerate() {
            self.restarts.add(status);
            let sidecar = inits.iter().any(|init| init.str("name") == status.str("name") && is_restartable(init));
            if sidecar {
                of_sidecars.add(status);
            }
            let terminated = status.at("state").get("terminated");
            if terminated.is_some_and(|state| state.int("exitCode").unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && status.bool("started") {
                self.ready += usize::from(status.bool("ready"));
                continue;
            }
            let waiting = status.str("state.waiting.reason");
            self.reason = match terminated {
                Some(state) => format!("Init:{}", end_of(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", inits.len()),
            };
            initializing = true;
            break;
        }
        (!initializing || conditions::is_true(pod, "Initialized")).then_some(of_sidecars)
    }

    fn walk_containers(&mut self, pod: &Tree) {
        let mut running = false;
        for status in pod.list("status.containerStatuses").iter().rev() {
            self.restarts.add(status);
            let state = status.at("state");
            let waiting = state.str("waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_string();
            } else if let Some(terminated) = state.get("terminated") {
                self.reason = end_of(terminated);
            } else if status.bool("ready") && state.has("running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            let ready = conditions::is_true(pod, "Ready");
            self.reason = if ready { "Running" } else { "NotReady" }.to_string();
        }
    }

    fn note_deletion(&mut self, pod: &Tree) {
        if pod.str("metadata.deletionTimestamp").is_empty() {
            return;
        }
        if pod.str("status.reason") == "NodeLost" {
            self.reason = "Unknown".to_string();
        } else if !matches!(pod.str("status.phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".to_string();
        }
    }
}

fn first_reason(pod: &Tree) -> String {
    let gated = conditions::find(pod, "PodScheduled").is_some_and(|one| one.str("reason") == "SchedulingGated");
    match pod.str("status.reason") {
        _ if gated => "SchedulingGated",
        "" => pod.str("status.phase"),
        reason => reason,
    }
    .to_string()
}

/// How a container terminated, in one word.
fn end_of(terminated: &Tree) -> String {
    match (terminated.str("reason"), terminated.int("signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_string(),
    }
}

fn readiness_gates(pod: &Tree) -> String {
    let gates = pod.list("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_string();
    }
    let open = gates.iter().filter(|gate| conditions::is_true(pod, gate.str("conditionType"))).count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn check(pod: Tree, expected: [&str; 3]) {
        let cells = cells(&pod, 1_704_240_000);
        let texts: Vec<&str> = cells[1..4].iter().filter_map(Tree::as_str).collect();
        assert_eq!(texts, expected, "{pod:?}");
    }

    fn pod(phase: &str, container: Tree) -> Tree {
        tree! {
            "spec" => tree! { "containers" => list![tree! { "name" => "c" }] },
            "status" => tree! { "phase" => phase, "containerStatuses" => list![container] },
        }
    }

    #[test]
    fn prints_the_most_relevant_status() {
        let terminated = |state: Tree| tree! { "state" => tree! { "terminated" => state } };
        check(pod("Succeeded", terminated(tree! { "reason" => "Completed" })), ["0/1", "Completed", "0"]);
        check(pod("Failed", terminated(tree! { "exitCode" => 3 })), ["0/1", "ExitCode:3", "0"]);
        check(pod("Failed", terminated(tree! { "exitCode" => 137, "signal" => 9 })), ["0/1", "Signal:9", "0"]);
        let crashed = tree! {
            "restartCount" => 5,
            "state" => tree! { "waiting" => tree! { "reason" => "CrashLoopBackOff" } },
            "lastState" => tree! { "terminated" => tree! { "finishedAt" => "2024-01-01T00:00:00Z" } },
        };
        check(pod("Running", crashed), ["0/1", "CrashLoopBackOff", "5 (2d ago)"]);
        let running = tree! { "ready" => true, "state" => tree! { "running" => tree! {} } };
        check(pod("Running", running), ["1/1", "Running", "0"]);
    }

    #[test]
    fn init_containers_take_precedence() {
        let pod = |status: Tree, init: Tree| {
            tree! {
                "spec" => tree! { "containers" => list![tree! { "name" => "c" }], "initContainers" => list![init] },
                "status" => tree! { "phase" => "Pending", "initContainerStatuses" => list![status] },
            }
        };
        let init = || tree! { "name" => "i" };
        let sidecar = || tree! { "name" => "i", "restartPolicy" => "Always" };
        let running = tree! { "name" => "i", "state" => tree! { "running" => tree! {} } };
        check(pod(running, init()), ["0/1", "Init:0/1", "0"]);
        let waiting = tree! { "name" => "i", "restartCount" => 3, "state" => tree! { "waiting" => tree! { "reason" => "CrashLoopBackOff" } } };
        check(pod(waiting, init()), ["0/1", "Init:CrashLoopBackOff", "3"]);
        let started = tree! { "name" => "i", "started" => true, "ready" => true, "restartCount" => 1 };
        check(pod(started, sidecar()), ["1/2", "Pending", "1"]);
    }
}
