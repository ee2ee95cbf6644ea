//! Changes that informers have reported and that are not applied yet: the newest state of each object.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use api::Tree;
use api::time::Timestamp;
use client::{Change, ObservedObject, Store, ordered};
use network::cidr::IpNet;
use stdx::sync::Mutex;
use tokio::sync::Notify;

use crate::model::ServiceKey;

/// When the change that an EndpointSlice reflects was observed.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// More times than this are not measured in one batch.
const MOST_TRIGGERS: usize = 1000;

/// A batch of changes.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) services: BTreeMap<ServiceKey, Option<ObservedObject>>,
    pub(super) slices: BTreeMap<ServiceKey, Option<ObservedObject>>,
    pub(super) node: Option<ObservedObject>,
    /// All ranges, if one has changed.
    pub(super) service_cidrs: Option<Vec<IpNet>>,
    /// The newest revision of a slice in the batch.
    pub(super) revision: u64,
    /// Whether an endpoint has left, which kubelets wait for.
    pub(super) endpoint_left: bool,
    pub(super) triggers: Vec<Timestamp>,
}

/// The changes of all informers.
#[derive(Default)]
pub(super) struct Pending {
    batch: Mutex<Batch>,
    cidrs: Mutex<BTreeMap<ServiceKey, Vec<IpNet>>>,
    changed: Notify,
    first_lists: Mutex<Option<FirstLists>>,
}

struct FirstLists {
    synced: [ordered::Receiver<bool>; 2],
    slices: Arc<Store>,
}

impl Pending {
    pub(super) fn service(&self, change: &Change) {
        self.batch.lock().services.insert(change.key.clone(), change.new.clone());
        self.changed.notify_one();
    }

    pub(super) fn slice(&self, change: &Change) {
        let mut batch = self.batch.lock();
        batch.slices.insert(change.key.clone(), change.new.clone());
        let revision = change.new.as_deref().and_then(client::revision_of).or(change.deleted_at);
        batch.revision = batch.revision.max(revision.unwrap_or(0));
        batch.endpoint_left |= has_left(change.old.as_deref(), change.new.as_deref());
        if let Some(new) = change.new.as_deref()
            && batch.triggers.len() < MOST_TRIGGERS
        {
            let text = new.map("metadata.annotations").str(TRIGGER_ANNOTATION);
            let before = change.old.as_deref().map(|old| old.map("metadata.annotations").str(TRIGGER_ANNOTATION));
            batch.triggers.extend(api::time::parse_micro(text).ok().filter(|_| before.is_some_and(|old| old != text)));
        }
        drop(batch);
        self.changed.notify_one();
    }

    pub(super) fn node(&self, change: &Change) {
        if let Some(node) = &change.new {
            self.batch.lock().node = Some(node.clone());
            self.changed.notify_one();
        }
    }

    pub(super) fn service_cidr(&self, change: &Change) {
        let mut cidrs = self.cidrs.lock();
        match change.new.as_deref() {
            Some(new) => {
                let ranges = new.list("spec.cidrs").iter().filter_map(Tree::as_str);
                cidrs.insert(change.key.clone(), ranges.filter_map(|text| text.parse().ok()).collect());
            }
            None => drop(cidrs.remove(&change.key)),
        }
        self.batch.lock().service_cidrs = Some(cidrs.values().flatten().copied().collect());
        self.changed.notify_one();
    }

    /// Nothing is applied before these lists are complete: a partial list would remove rules of a previous proxy.
    pub(super) fn wait_for(&self, synced: [ordered::Receiver<bool>; 2], slices: Arc<Store>) {
        *self.first_lists.lock() = Some(FirstLists { synced, slices });
    }

    /// Waits until the first lists are complete, and returns the revision of the slices.
    pub(super) async fn first_lists(&self) -> u64 {
        let Some(mut lists) = self.first_lists.lock().take() else { return 0 };
        for synced in &mut lists.synced {
            // The informers live as long as the proxy.
            let _ = synced.wait_for(|synced| *synced).await;
        }
        lists.slices.revision()
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take(&self) -> Batch {
        std::mem::take(&mut *self.batch.lock())
    }

    /// The numbers of Services and slices.
    pub(super) fn counts(&self) -> (usize, usize) {
        let batch = self.batch.lock();
        (batch.services.len(), batch.slices.len())
    }
}

/// Whether an endpoint that got traffic does not get new traffic any more.
fn has_left(old: Option<&Tree>, new: Option<&Tree>) -> bool {
    let Some(old) = old else { return false };
    let remaining: HashSet<&str> = new.into_iter().flat_map(in_rotation).collect();
    in_rotation(old).any(|address| !remaining.contains(address))
}

fn in_rotation(slice: &Tree) -> impl Iterator<Item = &str> {
    let is_in = |endpoint: &&Tree| {
        let conditions = endpoint.at("conditions");
        conditions.get("ready").and_then(Tree::as_bool).unwrap_or(true) && !conditions.bool("terminating")
    };
    let addresses = |endpoint| Tree::list(endpoint, "addresses").iter().filter_map(Tree::as_str);
    slice.list("endpoints").iter().filter(is_in).flat_map(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_leave_when_they_terminate_or_are_removed() {
        let slice = |endpoints: &str| api::json::decode(format!(r#"{{"endpoints":[{endpoints}]}}"#).as_bytes());
        let slice = |endpoints: &str| slice(endpoints).expect("JSON");
        let (a, b) = (r#"{"addresses":["10.0.0.1"],"conditions":{"ready":true}}"#, r#"{"addresses":["10.0.0.2"]}"#);
        let dying = r#"{"addresses":["10.0.0.1"],"conditions":{"ready":true,"terminating":true}}"#;
        for (old, new, left) in [
            (a.to_string(), format!("{a},{b}"), false),
            (format!("{a},{b}"), b.to_string(), true),
            (a.to_string(), dying.to_string(), true),
            (dying.to_string(), String::new(), false),
        ] {
            assert_eq!(has_left(Some(&slice(&old)), Some(&slice(&new))), left, "{old} {new}");
        }
        assert!(has_left(Some(&slice(a)), None) && !has_left(None, Some(&slice(a))));
    }
}
