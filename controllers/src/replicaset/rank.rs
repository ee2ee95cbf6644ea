//! The deletion order of surplus pods: least progress first, then lowest deletion cost, then pods that share a node
//! with their siblings, then the youngest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use api::time::{self, Timestamp};

use crate::support::pods;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` pods to delete. `related` are the active pods of all ReplicaSets with the same owner: nodes with many
/// of them are relieved first.
pub(crate) fn to_delete(pods: &[Arc<Tree>], related: &[Arc<Tree>], count: usize, now: Timestamp) -> Vec<Arc<Tree>> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related {
        *on_node.entry(pod.str("spec.nodeName")).or_default() += 1;
    }
    let siblings = |pod: &Tree| on_node.get(pod.str("spec.nodeName")).copied().unwrap_or_default();
    let mut chosen = pods.to_vec();
    chosen.sort_by_cached_key(|pod| order(pod, siblings(pod), now));
    chosen.truncate(count);
    chosen
}

/// The ages of ready pods to delete, relative to the youngest ready pod.
pub(crate) fn age_ratios(pods: &[Arc<Tree>], doomed: &[Arc<Tree>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Arc<Tree>| {
        let made = time::parse(pod.str("metadata.creationTimestamp")).ok()?;
        let age = now.seconds.saturating_sub(made.seconds) as f64;
        (pods::is_ready(pod) && age > 0.0).then_some(age)
    };
    let youngest = pods.iter().filter_map(age).fold(f64::INFINITY, f64::min);
    doomed.iter().filter_map(age).map(|age| age / youngest).collect()
}

/// Smaller is deleted first. Ages are compared by magnitude, and within a magnitude by uid, which is effectively
/// random: otherwise the youngest failure domain would always shrink.
fn order(pod: &Tree, siblings: usize, now: Timestamp) -> impl Ord + use<> {
    let ready = pods::is_ready(pod);
    let ready_since = if ready { magnitude(ready_time(pod), now) } else { 0 };
    let (restarts, sidecar_restarts) = restarts(pod);
    (
        !pod.str("spec.nodeName").is_empty(),
        phase(pod),
        ready,
        deletion_cost(pod),
        Reverse(siblings),
        ready_since,
        Reverse(restarts),
        Reverse(sidecar_restarts),
        magnitude(pod.str("metadata.creationTimestamp"), now),
        pod.str("metadata.uid").to_string(),
    )
}

fn phase(pod: &Tree) -> u8 {
    match pod.str("status.phase") {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    }
}

fn deletion_cost(pod: &Tree) -> i32 {
    pod.map("metadata.annotations").str(DELETION_COST).parse().unwrap_or_default()
}

fn ready_time(pod: &Tree) -> &str {
    let ready = pod.list("status.conditions").iter().find(|condition| condition.str("type") == "Ready");
    ready.map_or("", |condition| condition.str("lastTransitionTime"))
}

/// The binary logarithm of an age in nanoseconds; future times count as newest, missing ones as oldest.
fn magnitude(since: &str, now: Timestamp) -> i32 {
    let Ok(since) = time::parse(since) else { return i32::MAX };
    let nanos =
        i128::from(now.seconds - since.seconds) * 1_000_000_000 + i128::from(now.nanos) - i128::from(since.nanos);
    if nanos > 0 { nanos.ilog2() as i32 } else { -1 }
}

/// The highest restart count of a container and of a sidecar.
fn restarts(pod: &Tree) -> (i64, i64) {
    let is_sidecar = |name: &str| {
        let mut containers = pod.list("spec.initContainers").iter();
        containers.any(|container| container.str("name") == name && container.str("restartPolicy") == "Always")
    };
    let count = |status: &Tree| status.int("restartCount").unwrap_or_default();
    let regular = pod.list("status.containerStatuses").iter().map(count).max();
    let sidecars = pod.list("status.initContainerStatuses").iter().filter(|status| is_sidecar(status.str("name")));
    (regular.unwrap_or_default(), sidecars.map(count).max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000, nanos: 0 };

    struct Pod(Tree);

    fn pod(name: &str) -> Pod {
        let metadata = tree! {
            "name" => name, "uid" => name, "creationTimestamp" => time::format_seconds(0), "annotations" => tree! {},
        };
        Pod(tree! {
            "metadata" => metadata,
            "spec" => tree! { "nodeName" => "n" },
            "status" => tree! { "phase" => "Running" },
        })
        .ready(1000)
    }

    impl Pod {
        fn with(mut self, path: &str, key: &str, value: impl Into<Tree>) -> Pod {
            self.0.child(path).set(key, value);
            self
        }

        fn ready(self, seconds_ago: i64) -> Pod {
            let since = time::format_seconds(NOW.seconds - seconds_ago);
            let condition = tree! { "type" => "Ready", "status" => "True", "lastTransitionTime" => since };
            self.with("status", "conditions", list![condition])
        }

        fn unready(self) -> Pod {
            self.with("status", "conditions", list![])
        }

        fn restarted(self, times: i64) -> Pod {
            self.with("status", "containerStatuses", list![tree! { "restartCount" => times }])
        }

        fn created(self, seconds_ago: i64) -> Pod {
            self.with("metadata", "creationTimestamp", time::format_seconds(NOW.seconds - seconds_ago))
        }
    }

    fn sorted(pods: Vec<Pod>, related: &[(&str, usize)]) -> Vec<String> {
        let pods: Vec<Arc<Tree>> = pods.into_iter().map(|pod| Arc::new(pod.0)).collect();
        let on = |node: &str| Arc::new(tree! { "spec" => tree! { "nodeName" => node } });
        let related: Vec<Arc<Tree>> =
            related.iter().flat_map(|(node, count)| std::iter::repeat_with(|| on(node)).take(*count)).collect();
        let chosen = to_delete(&pods, &related, pods.len(), NOW);
        chosen.iter().map(|pod| pod.str("metadata.name").to_string()).collect()
    }

    /// The first is deleted before the second, in any input order.
    fn check(first: Pod, second: Pod) {
        let pair = |a: &Pod, b: &Pod| vec![Pod(a.0.clone()), Pod(b.0.clone())];
        assert_eq!(sorted(pair(&first, &second), &[]), ["a", "b"]);
        assert_eq!(sorted(pair(&second, &first), &[]), ["a", "b"]);
    }

    #[test]
    fn ranks_pods_for_deletion() {
        check(pod("a").with("spec", "nodeName", ""), pod("b").unready());
        check(pod("a").with("status", "phase", "Pending"), pod("b").with("status", "phase", "Unknown"));
        check(pod("a").with("status", "phase", "Unknown"), pod("b").unready());
        check(pod("a").unready().created(900), pod("b").ready(1));
        check(pod("a").with("metadata.annotations", DELETION_COST, "-5").ready(9000), pod("b").ready(1));
        check(pod("a"), pod("b").with("metadata.annotations", DELETION_COST, "1"));
        check(pod("a").ready(10), pod("b").ready(1000));
        check(pod("a").restarted(3), pod("b").restarted(2));
        check(pod("a").created(10), pod("b").created(1000));
        check(pod("a"), pod("b"));
    }

    #[test]
    fn ages_are_compared_by_magnitude() {
        check(pod("a").ready(1000), pod("b").ready(990));
        check(pod("a").created(1000), pod("b").created(990));
    }

    #[test]
    fn relieves_nodes_with_most_siblings() {
        let on = |name: &str, node: &str| pod(name).with("spec", "nodeName", node);
        assert_eq!(sorted(vec![on("a", "few"), on("b", "many")], &[("few", 1), ("many", 2)]), ["b", "a"]);
    }

    #[test]
    fn ignores_invalid_deletion_costs() {
        let bad = pod("a").with("metadata.annotations", DELETION_COST, "cheap");
        assert_eq!(deletion_cost(&bad.0), 0);
    }
}
