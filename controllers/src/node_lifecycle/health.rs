//! Tracks when a node last showed a sign of life. Only changes count, with our own clock: timestamps of the node are
//! compared with each other, never with our clock.

use std::time::Duration;

use api::Tree;

use super::plan::condition;

/// How long a node may be silent before it is marked Unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GracePeriods {
    pub monitor: Duration,
    /// For a node that never reported a status.
    pub startup: Duration,
}

impl Default for GracePeriods {
    fn default() -> GracePeriods {
        GracePeriods { monitor: Duration::from_secs(50), startup: Duration::from_secs(60) }
    }
}

/// The last observed signs of life of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Health {
    uid: String,
    heartbeat: Tree,
    renewed: Tree,
    last_report: Duration,
}

impl Health {
    /// Records the node; a different node of the same name starts anew. Returns whether it is new.
    pub(crate) fn record_node(&mut self, node: &Tree, now: Duration) -> bool {
        let heartbeat = condition(node, "Ready").map_or(&Tree::Null, |ready| ready.at("lastHeartbeatTime"));
        let is_new = self.uid != node.str("metadata.uid");
        if is_new || self.heartbeat != *heartbeat {
            self.uid = node.str("metadata.uid").to_string();
            self.heartbeat = heartbeat.clone();
            self.last_report = now;
        }
        is_new
    }

    /// Records the renew time of its lease.
    pub(crate) fn record_lease(&mut self, renewed: &Tree, now: Duration) {
        if self.renewed != *renewed {
            self.renewed = renewed.clone();
            self.last_report = now;
        }
    }

    /// Resets the timer after we were cut off ourselves.
    pub(crate) fn restart_grace_period(&mut self, now: Duration) {
        self.last_report = now;
    }

    /// The remaining grace period; None if it is over.
    pub(super) fn left(&mut self, node: &Tree, grace_periods: &GracePeriods, now: Duration) -> Option<Duration> {
        self.record_node(node, now);
        let has_spoken = condition(node, "Ready").is_some();
        let allowed = if has_spoken { grace_periods.monitor } else { grace_periods.startup };
        (self.last_report + allowed).checked_sub(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn node(heartbeat: &str) -> Tree {
        let ready = tree! { "type" => "Ready", "status" => "True", "lastHeartbeatTime" => heartbeat };
        tree! { "metadata" => tree! { "uid" => "1" }, "status" => tree! { "conditions" => list![ready] } }
    }

    #[test]
    fn heartbeats_reset_the_grace_period() {
        let seconds = Duration::from_secs;
        let mut health = Health::default();
        assert!(health.record_node(&node("a"), seconds(100)));
        health.record_lease(&Tree::from("a"), seconds(110));
        assert!(!health.record_node(&node("a"), seconds(120)), "nothing is new");
        health.record_lease(&Tree::from("a"), seconds(120));
        assert_eq!(health.last_report, seconds(110));
        health.record_lease(&Tree::from("b"), seconds(130));
        assert_eq!(health.last_report, seconds(130));
        health.record_node(&node("b"), seconds(140));
        assert_eq!(health.last_report, seconds(140));
        let mut other = node("b");
        other.child("metadata").set("uid", "2");
        assert!(health.record_node(&other, seconds(150)));
        assert_eq!(health.last_report, seconds(150));
    }

    #[test]
    fn grace_period_expires() {
        let grace_periods = GracePeriods::default();
        let seconds = Duration::from_secs;
        let mut health = Health::default();
        health.record_node(&node("a"), seconds(100));
        assert_eq!(health.left(&node("a"), &grace_periods, seconds(149)), Some(seconds(1)));
        assert_eq!(health.left(&node("a"), &grace_periods, seconds(150)), None);
        let mut mute = tree! { "metadata" => tree! { "uid" => "2" } };
        assert_eq!(health.left(&mute, &grace_periods, seconds(150)), Some(seconds(60)), "it has yet to speak");
        mute.child("spec");
        assert_eq!(health.left(&mute, &grace_periods, seconds(200)), Some(seconds(10)));
    }
}
