//! Graceful node shutdown: pods are stopped first, in groups of rising priority, each group within its time. The caller
//! decides when.

pub mod inhibit;

use std::sync::Arc;
use std::time::Duration;

use api::Tree;

use crate::config::Shutdown;
use crate::kubelet::Kubelet;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::node::Node;
use crate::pod::status;
use crate::pod::worker::Termination;

/// From here on pods are critical.
const CRITICAL: i64 = 2_000_000_000;
/// The grace period of a pod that does not specify one.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// How long the final statuses of killed pods, and of the node, are waited for.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pods that are terminated together, and their grace period.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) period: Duration,
    /// The uids, and the grace of each in seconds.
    pub(crate) pods: Vec<(String, i64)>,
}

/// How long all pods have together; zero if graceful shutdown is disabled.
pub fn whole(shutdown: &Shutdown) -> Duration {
    periods(shutdown).iter().fold(Duration::ZERO, |sum, (_, period)| sum.saturating_add(*period))
}

/// Priorities and grace periods, the lowest first. Empty if graceful shutdown is disabled.
fn periods(shutdown: &Shutdown) -> Vec<(i64, Duration)> {
    if !shutdown.by_priority.is_empty() {
        return shutdown.by_priority.clone();
    }
    let (all, critical) = (shutdown.grace_period, shutdown.critical_grace_period);
    if all.is_zero() {
        return Vec::new();
    }
    vec![(0, all.saturating_sub(critical)), (CRITICAL, critical)]
}

/// The groups of pods, in the order in which they stop.
pub(crate) fn plan(shutdown: &Shutdown, pods: &[Arc<Tree>]) -> Vec<Group> {
    let periods = periods(shutdown);
    let mut groups: Vec<Group> =
        periods.iter().map(|(_, period)| Group { period: *period, pods: Vec::new() }).collect();
    for one in pods.iter().filter(|pod| !pod::is_over(pod)) {
        let priority = one.int("spec.priority").unwrap_or(0);
        // Pods below the lowest priority belong to its group.
        let at = periods.iter().rposition(|(from, _)| priority >= *from).unwrap_or(0);
        let Some(group) = groups.get_mut(at) else { continue };
        let own = one.int("spec.terminationGracePeriodSeconds").unwrap_or(DEFAULT_GRACE_SECONDS);
        group.pods.push((pod::uid(one).to_string(), own.min(group.period.as_secs() as i64)));
    }
    groups.retain(|group| !group.pods.is_empty());
    groups.iter_mut().for_each(|group| group.pods.sort());
    groups
}

fn termination(pod: &Tree, grace_seconds: i64, now: i64) -> Termination {
    Termination {
        problem: Problem { reason: "Terminated".into(), message: MESSAGE.to_string() },
        grace_seconds: Some(grace_seconds),
        condition: Some(status::disruption(pod, MESSAGE, now)),
    }
}

/// Stops the pods and reports the node as not ready. Returns when the pods have stopped and the API has their statuses,
/// or after the timeout.
pub async fn run(node: &Node, running: &Kubelet, shutdown: &Shutdown) {
    node.record_event("NodeShutdown", "Shutdown manager detected shutdown event");
    node.update_reports(|reports| reports.shutting_down = true);
    let groups = plan(shutdown, &running.workers.pods());
    let all: Vec<String> = groups.iter().flat_map(|group| &group.pods).map(|(uid, _)| uid.clone()).collect();
    for group in &groups {
        end(running, group).await;
    }
    let reported = async {
        is_down(running, &all).await;
        node.wait_for_shutdown_report().await;
    };
    if tokio::time::timeout(REPORT_TIMEOUT, reported).await.is_err() {
        tracing::warn!("not all pod statuses were written before the shutdown");
    }
}

/// The shutdown was cancelled: the node accepts pods again. Stopped pods stay stopped.
pub fn cancel(node: &Node) {
    node.record_event("NodeShutdown", "Shutdown manager detected shutdown cancellation");
    node.update_reports(|reports| reports.shutting_down = false);
}

async fn end(running: &Kubelet, group: &Group) {
    let seconds = group.period.as_secs();
    tracing::info!(pods = group.pods.len(), seconds, "stopping pods before system shutdown");
    let now = running.context.clock.now().seconds;
    for (uid, grace) in &group.pods {
        if let Some((pod, _)) = running.workers.find(uid) {
            running.workers.end(uid, termination(&pod, *grace, now));
        }
    }
    let uids: Vec<String> = group.pods.iter().map(|(uid, _)| uid.clone()).collect();
    if tokio::time::timeout(group.period, is_down(running, &uids)).await.is_err() {
        tracing::warn!("pods did not terminate within the shutdown grace period");
    }
}

/// Waits until no container of the pods runs and the API has their status.
async fn is_down(running: &Kubelet, uids: &[String]) {
    for uid in uids {
        running.workers.is_down(uid).await;
    }
    running.context.statuses.wait_until_written(uids).await;
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn pod(uid: &str, priority: i64, grace: i64, phase: &str) -> Arc<Tree> {
        let spec = tree! { "priority" => priority, "terminationGracePeriodSeconds" => grace };
        let status = tree! { "phase" => phase };
        Arc::new(tree! { "metadata" => tree! { "uid" => uid }, "spec" => spec, "status" => status })
    }

    #[test]
    fn critical_pods_stop_last() {
        let seconds = Duration::from_secs;
        let pods = [
            pod("critical", CRITICAL + 1000, 60, "Running"),
            pod("plain", 0, 5, "Running"),
            pod("slow", 10, 600, "Running"),
            pod("over", 0, 5, "Succeeded"),
            pod("low", -10, 600, "Running"),
        ];
        let reported = |shutdown: &Shutdown| {
            let group = |group: Group| {
                let pods = group.pods.iter().map(|(uid, grace)| format!("{uid}={grace}"));
                format!("{}: {}", group.period.as_secs(), pods.collect::<Vec<_>>().join(" "))
            };
            plan(shutdown, &pods).into_iter().map(group).collect::<Vec<_>>()
        };
        let plain = Shutdown { grace_period: seconds(30), critical_grace_period: seconds(10), ..Shutdown::default() };
        assert_eq!(reported(&plain), ["20: low=20 plain=5 slow=20", "10: critical=10"]);
        let by_priority = Shutdown {
            by_priority: vec![(0, seconds(60)), (10, seconds(120)), (CRITICAL, seconds(5))],
            ..Shutdown::default()
        };
        assert_eq!(reported(&by_priority), ["60: low=60 plain=5", "120: slow=120", "5: critical=5"]);
        assert!(reported(&Shutdown::default()).is_empty(), "it is disabled");
        assert_eq!([&plain, &by_priority, &Shutdown::default()].map(|one| whole(one).as_secs()), [30, 185, 0]);
    }
}
