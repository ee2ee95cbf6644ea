//! Assigned pods, and assumed ones until their binding is confirmed or undone.

use std::sync::Arc;

use super::{NodeId, PlacedPod, Snapshot};
use podmodel::Pod;

impl Snapshot {
    /// Adds or updates an assigned pod from the API. Finished pods are removed.
    pub fn put_pod(&mut self, pod: Arc<Pod>) {
        if pod.is_over || pod.node_name.is_empty() {
            return self.remove_pod(&pod.uid);
        }
        if let Some(placed) = self.placed.get_mut(&pod.uid) {
            placed.is_assumed = false;
            if counts_equally(&placed.pod, &pod) {
                return self.refresh(pod);
            }
            self.remove_pod(&pod.uid);
        }
        self.place(pod, false);
    }

    /// Assumes a pod, which has its node's name.
    pub fn assume(&mut self, pod: Arc<Pod>) {
        if !self.placed.contains_key(&pod.uid) {
            self.place(pod, true);
        }
    }

    /// Undoes an assumption unless the API has confirmed it.
    pub fn forget(&mut self, uid: &str) {
        if self.is_assumed(uid) {
            self.remove_pod(uid);
        }
    }

    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|placed| placed.is_assumed)
    }

    /// The pod of a uid, if it is on a node.
    pub fn placed(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.placed.get(uid).map(|placed| &placed.pod)
    }

    pub(crate) fn placed_count(&self) -> usize {
        self.placed.len()
    }

    pub(crate) fn assumed_count(&self) -> usize {
        self.placed.values().filter(|placed| placed.is_assumed).count()
    }

    /// Removes a pod from its node.
    pub fn remove_pod(&mut self, uid: &str) {
        let Some(placed) = self.placed.remove(uid) else { return };
        let Some(&id) = self.by_name.get(&placed.pod.node_name) else {
            if let Some(orphans) = self.orphans.get_mut(&placed.pod.node_name) {
                orphans.retain(|pod| pod.uid != uid);
            }
            self.orphans.retain(|_, pods| !pods.is_empty());
            return;
        };
        if let Some(pod) = self.slots[id.at()].as_mut().and_then(|state| state.remove(uid)) {
            self.remove_from_index(&pod, id);
        }
        self.bump_generation(id);
    }

    fn place(&mut self, pod: Arc<Pod>, is_assumed: bool) {
        self.placed.insert(pod.uid.clone(), PlacedPod { pod: pod.clone(), is_assumed });
        let Some(&id) = self.by_name.get(&pod.node_name) else {
            self.orphans.entry(pod.node_name.clone()).or_default().push(pod);
            return;
        };
        self.index(&pod, id);
        if let Some(state) = &mut self.slots[id.at()] {
            state.add(pod);
        }
        self.bump_generation(id);
    }

    /// No counted field of the pod has changed, but others may have.
    fn refresh(&mut self, pod: Arc<Pod>) {
        let node = self.by_name.get(&pod.node_name).and_then(|id| self.slots[id.at()].as_mut());
        let pods = match node {
            Some(state) => Some(&mut state.pods),
            None => self.orphans.get_mut(&pod.node_name),
        };
        if let Some(slot) = pods.and_then(|pods| pods.iter_mut().find(|known| known.uid == pod.uid)) {
            *slot = pod.clone();
        }
        if let Some(placed) = self.placed.get_mut(&pod.uid) {
            placed.pod = pod;
        }
    }

    pub(super) fn index(&mut self, pod: &Arc<Pod>, id: NodeId) {
        self.affinity.add(pod, id);
        self.matching.add(pod, id, &self.namespaces);
    }

    pub(super) fn remove_from_index(&mut self, pod: &Arc<Pod>, id: NodeId) {
        self.affinity.remove(pod, id);
        self.matching.remove(pod, id);
    }
}

/// Whether all counted fields of a pod are equal.
fn counts_equally(old: &Pod, new: &Pod) -> bool {
    old.node_name == new.node_name
        && old.labels == new.labels
        && (Arc::ptr_eq(&old.spec, &new.spec) || old.spec == new.spec)
        && old.is_terminating == new.is_terminating
}
