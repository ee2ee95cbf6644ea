//! Assumed bindings that are not written or observed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Str;

use super::plan::Decision;

#[derive(Default)]
pub(crate) struct AssumeCache {
    /// The claim key by volume name.
    volumes: BTreeMap<Str, Str>,
    /// The node by claim key, for volumes to be provisioned.
    nodes: BTreeMap<Str, Str>,
    pods: BTreeMap<Str, Arc<Decision>>,
}

impl AssumeCache {
    /// The key of the claim that a volume is assumed for.
    pub(crate) fn owner_of(&self, volume: &str) -> Option<&str> {
        self.volumes.get(volume).map(Str::as_str)
    }

    pub(crate) fn node_of(&self, claim: &str) -> Option<&str> {
        self.nodes.get(claim).map(Str::as_str)
    }

    pub(crate) fn of(&self, uid: &str) -> Option<Arc<Decision>> {
        self.pods.get(uid).cloned()
    }

    /// An empty decision assumes nothing.
    pub(crate) fn take(&mut self, uid: &str, node: &str, decision: Decision) {
        self.release(uid);
        if decision.is_empty() {
            return;
        }
        for (claim, volume) in &decision.bindings {
            self.volumes.insert(volume.name.clone(), claim.key.clone());
        }
        for claim in &decision.provisions {
            self.nodes.insert(claim.key.clone(), Str::new(node));
        }
        self.pods.insert(Str::new(uid), Arc::new(decision));
    }

    pub(crate) fn release(&mut self, uid: &str) {
        let Some(decision) = self.pods.remove(uid) else { return };
        for (_, volume) in &decision.bindings {
            self.volumes.remove(&volume.name);
        }
        // Another pod may use the same claim on the same node.
        let still =
            |wanted: &Str| self.pods.values().any(|one| one.provisions.iter().any(|claim| claim.key == *wanted));
        let freed: Vec<&Str> = decision.provisions.iter().map(|claim| &claim.key).filter(|key| !still(key)).collect();
        freed.into_iter().for_each(|key| drop(self.nodes.remove(key)));
    }
}
