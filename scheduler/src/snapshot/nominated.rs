//! Waiting pods for which a node is kept: others of less priority do not take their place there.

use std::sync::Arc;

use super::Snapshot;
use crate::model::Pod;

impl Snapshot {
    /// Keeps a place for a waiting pod; a pod has one at a time.
    pub fn nominate(&mut self, pod: Arc<Pod>, node: &str) {
        self.unnominate(&pod.uid);
        self.nominated.entry(node.into()).or_default().push(pod);
        self.touch_named(node);
    }

    pub fn unnominate(&mut self, uid: &str) {
        let held = self.nominated.iter().find(|(_, pods)| pods.iter().any(|pod| pod.uid == uid));
        let Some(node) = held.map(|(node, _)| node.clone()) else { return };
        if let Some(pods) = self.nominated.get_mut(&node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.nominated.remove(&node);
            }
        }
        self.touch_named(&node);
    }

    pub fn nominated(&self, node: &str) -> &[Arc<Pod>] {
        if self.nominated.is_empty() {
            return &[];
        }
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// The node that is kept for a pod.
    pub fn nominated_node(&self, uid: &str) -> Option<&str> {
        let mut held = self.nominated.iter();
        held.find(|(_, pods)| pods.iter().any(|pod| pod.uid == uid)).map(|(node, _)| node.as_str())
    }

    pub fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    fn touch_named(&mut self, node: &str) {
        if let Some(&id) = self.by_name.get(node) {
            self.touch(id);
        }
    }
}
