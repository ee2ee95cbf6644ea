//! When a node was heard of last. Only changes are judged, by our own clock: times that a node writes are
//! compared with each other for being different, never with ours.

use std::time::Duration;

use api::Tree;

use super::plan::condition;

/// How long a node may be silent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    pub monitor: Duration,
    /// For one that has never said how it is.
    pub startup: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { monitor: Duration::from_secs(50), startup: Duration::from_secs(60) }
    }
}

/// What was heard of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    uid: String,
    heartbeat: Tree,
    renewed: Tree,
    heard: Duration,
}

impl Health {
    /// Takes the node as it is now; another node of the same name begins anew. Whether it was never seen.
    pub fn see_node(&mut self, node: &Tree, now: Duration) -> bool {
        let heartbeat = condition(node, "Ready").map_or(&Tree::Null, |ready| ready.at("lastHeartbeatTime"));
        let is_new = self.uid != node.str("metadata.uid");
        if is_new || self.heartbeat != *heartbeat {
            self.uid = node.str("metadata.uid").to_string();
            self.heartbeat = heartbeat.clone();
            self.heard = now;
        }
        is_new
    }

    /// Takes the time that its lease shows.
    pub fn see_lease(&mut self, renewed: &Tree, now: Duration) {
        if self.renewed != *renewed {
            self.renewed = renewed.clone();
            self.heard = now;
        }
    }

    /// It was us who did not hear.
    pub fn forgive(&mut self, now: Duration) {
        self.heard = now;
    }

    /// How long it may still be silent; nothing where its time is up.
    pub fn left(&mut self, node: &Tree, patience: &Patience, now: Duration) -> Option<Duration> {
        self.see_node(node, now);
        let has_spoken = condition(node, "Ready").is_some();
        let allowed = if has_spoken { patience.monitor } else { patience.startup };
        (self.heard + allowed).checked_sub(now).filter(|left| !left.is_zero())
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
    fn any_sign_of_life_counts() {
        let seconds = Duration::from_secs;
        let mut health = Health::default();
        assert!(health.see_node(&node("a"), seconds(100)));
        health.see_lease(&Tree::from("a"), seconds(110));
        assert!(!health.see_node(&node("a"), seconds(120)), "nothing is new");
        health.see_lease(&Tree::from("a"), seconds(120));
        assert_eq!(health.heard, seconds(110));
        health.see_lease(&Tree::from("b"), seconds(130));
        assert_eq!(health.heard, seconds(130));
        health.see_node(&node("b"), seconds(140));
        assert_eq!(health.heard, seconds(140));
        let mut other = node("b");
        other.child("metadata").set("uid", "2");
        assert!(health.see_node(&other, seconds(150)));
        assert_eq!(health.heard, seconds(150));
    }

    #[test]
    fn patience_ends() {
        let patience = Patience::default();
        let seconds = Duration::from_secs;
        let mut health = Health::default();
        health.see_node(&node("a"), seconds(100));
        assert_eq!(health.left(&node("a"), &patience, seconds(149)), Some(seconds(1)));
        assert_eq!(health.left(&node("a"), &patience, seconds(150)), None);
        let mut mute = tree! { "metadata" => tree! { "uid" => "2" } };
        assert_eq!(health.left(&mute, &patience, seconds(150)), Some(seconds(60)), "it has yet to speak");
        mute.child("spec");
        assert_eq!(health.left(&mute, &patience, seconds(200)), Some(seconds(10)));
    }
}
