//! Unscheduled pods with a nominated node: pods of lower priority do not take their place.

use std::sync::Arc;

use super::{NodeId, Snapshot};
use podmodel::Pod;

impl Snapshot {
    /// Nominates a pod to a node; a pod has one nomination at a time.
    pub(crate) fn nominate(&mut self, pod: Arc<Pod>, node: &str) {
        self.remove_nomination(&pod.uid);
        self.nominated_at.insert(pod.uid.clone(), node.into());
        self.nominated.entry(node.into()).or_default().push(pod);
        self.update_node(node);
    }

    pub(crate) fn remove_nomination(&mut self, uid: &str) {
        let Some(node) = self.nominated_at.remove(uid) else { return };
        if let Some(pods) = self.nominated.get_mut(&node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.nominated.remove(&node);
            }
        }
        self.update_node(&node);
    }

    pub(crate) fn nominated(&self, node: &str) -> &[Arc<Pod>] {
        if self.nominated.is_empty() {
            return &[];
        }
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// The nominated node of a pod.
    pub(crate) fn nominated_node(&self, uid: &str) -> Option<&str> {
        self.nominated_at.get(uid).map(|node| node.as_str())
    }

    /// Whether a pod is nominated to the node.
    pub(crate) fn is_kept(&self, id: NodeId) -> bool {
        !self.nominated.is_empty() && self.kept.get(id.at()).copied().unwrap_or(false)
    }

    /// Updates the array by slot from the map by name.
    pub(super) fn update_slot(&mut self, id: NodeId, name: &str) {
        let is_kept = self.nominated.contains_key(name);
        if let Some(slot) = self.kept.get_mut(id.at()) {
            *slot = is_kept;
        }
    }

    fn update_node(&mut self, node: &str) {
        if let Some(&id) = self.by_name.get(node) {
            self.update_slot(id, node);
        }
    }
}
