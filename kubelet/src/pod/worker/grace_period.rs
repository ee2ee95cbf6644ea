//! Grace periods of pods and containers. A grace period can be shortened while it runs, never extended.

use api::Tree;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{DesiredPod, Termination};

/// The grace period of a pod that does not specify one.
pub(crate) const DEFAULT_SECONDS: i64 = 30;
/// The least time between the signal and the kill, however long the hook took.
const LEAST: i64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GracePeriod {
    /// None for the container's own grace period.
    seconds: Option<i64>,
    since: Instant,
}

impl GracePeriod {
    pub(crate) fn now(seconds: Option<i64>) -> GracePeriod {
        GracePeriod { seconds, since: Instant::now() }
    }

    /// A grace period that is never shortened.
    pub(crate) fn fixed(seconds: Option<i64>) -> watch::Receiver<GracePeriod> {
        watch::channel(GracePeriod::now(seconds)).1
    }

    /// The remaining seconds.
    pub(crate) fn left(&self, own: i64) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_secs()).unwrap_or(i64::MAX);
        self.seconds.unwrap_or(own).saturating_sub(passed)
    }

    /// The seconds between the signal and the force.
    pub(crate) fn for_signal(&self, own: i64) -> i64 {
        self.left(own).max(if self.seconds == Some(0) { 0 } else { LEAST })
    }

    /// Shortens the grace period, if the requested one is shorter than the rest of this one; returns whether it is.
    pub(crate) fn shorten(&mut self, seconds: Option<i64>, own: i64) -> bool {
        let shorter = seconds.filter(|seconds| *seconds < self.left(own));
        shorter.inspect(|shorter| *self = GracePeriod::now(Some(*shorter))).is_some()
    }
}

/// Waits until the grace period is shortened.
pub(crate) async fn shortened(given: &mut watch::Receiver<GracePeriod>) {
    if given.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The shortest requested grace period; None for the pod's own.
pub(crate) fn requested(desired: &DesiredPod, ended: Option<&Termination>) -> Option<i64> {
    let endings = [ended, desired.ending.as_ref()].into_iter().flatten();
    let of_node = endings.filter_map(|ending| ending.grace_seconds);
    of_node.chain(desired.pod.int("metadata.deletionGracePeriodSeconds")).min()
}

pub(crate) fn own(pod: &Tree) -> i64 {
    pod.int("spec.terminationGracePeriodSeconds").unwrap_or(DEFAULT_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use api::tree;

    use super::*;
    use crate::model::problem::Problem;

    fn ending(grace_seconds: Option<i64>) -> Termination {
        let problem = Problem { reason: "Evicted".into(), message: String::new() };
        Termination { problem, grace_seconds, condition: None }
    }

    #[test]
    fn shortest_grace_period_counts() {
        // The grace period of the deletion, of the known ending, and of a later one.
        let cases = [
            (None, None, None, None),
            (Some(600), None, None, Some(600)),
            (Some(600), Some(Some(1)), None, Some(1)),
            (Some(1), Some(Some(60)), None, Some(1)),
            (Some(600), Some(None), Some(Some(5)), Some(5)),
            (None, Some(None), None, None),
        ];
        for (deletion, known, later, expected) in cases {
            let mut pod = tree! { "metadata" => tree! {} };
            if let Some(seconds) = deletion {
                pod.child("metadata").set("deletionGracePeriodSeconds", seconds);
            }
            let desired = DesiredPod { pod: Arc::new(pod), is_removed: false, ending: later.map(ending) };
            assert_eq!(requested(&desired, known.map(ending).as_ref()), expected, "{deletion:?} {known:?} {later:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn grace_period_never_grows() {
        let mut given = GracePeriod::now(None);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!((given.left(30), given.left(i64::MAX)), (20, i64::MAX - 10));
        assert!(!given.shorten(Some(30), 30) && !given.shorten(None, 30));
        assert!(given.shorten(Some(5), 30));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!((given.left(30), given.for_signal(30)), (1, 2));
        assert!(!given.shorten(Some(5), 30), "what is asked once more does not begin anew");
        assert_eq!(GracePeriod::now(Some(0)).for_signal(30), 0);
    }
}
