//! Writes the PodScheduled condition and the nominated node of unschedulable pods. Only the latest value is written,
//! one request at a time for each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree, list, tree};
use client::{Key, Patch, Queue, Result, WorkResult, split};
use stdx::sync::{Mutex, MutexGuard};

use super::{PODS, Shared, cause};
use crate::core::NominationChange;
use podmodel::Pod;

pub(super) const WRITERS: usize = 8;

/// A pending status update.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StatusUpdate {
    uid: Str,
    /// Reason and message.
    condition: Option<(&'static str, String)>,
    nominated: NominationChange,
}

pub(crate) struct Statuses {
    pub queue: Arc<Queue>,
    update: Mutex<BTreeMap<Key, StatusUpdate>>,
}

impl Statuses {
    pub(super) fn new(queue: Arc<Queue>) -> Statuses {
        Statuses { queue, update: Mutex::default() }
    }

    /// Fields that are not set keep their pending value.
    pub(super) fn request(&self, pod: &Pod, condition: Option<(&'static str, &str)>, nominated: NominationChange) {
        let condition = condition.map(|(reason, message)| (reason, message.to_string()));
        let update = StatusUpdate { uid: pod.uid.clone(), condition, nominated };
        let mut all = self.all();
        let before = all.remove(&pod.key).filter(|before| before.uid == update.uid);
        all.insert(pod.key.clone(), merged(before, update));
        drop(all);
        self.queue.add(pod.key.clone());
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, StatusUpdate>> {
        self.update.lock()
    }

    /// The update failed: it is queued again unless there is a newer one.
    fn requeue(&self, key: &Key, failed: StatusUpdate) {
        let mut all = self.all();
        let newer = all.remove(key);
        let update = match newer {
            Some(newer) if newer.uid != failed.uid => newer,
            Some(newer) => merged(Some(failed), newer),
            None => failed,
        };
        all.insert(key.clone(), update);
    }
}

fn merged(before: Option<StatusUpdate>, now: StatusUpdate) -> StatusUpdate {
    let Some(before) = before else { return now };
    let nominated = if now.nominated == NominationChange::Unchanged { before.nominated } else { now.nominated };
    StatusUpdate { uid: now.uid, condition: now.condition.or(before.condition), nominated }
}

pub(super) async fn write_all(shared: Arc<Shared>) {
    while let Some(key) = shared.statuses.queue.next().await {
        let update = shared.statuses.all().remove(&key);
        let ended = match update {
            None => WorkResult::Done,
            Some(update) => match write(&shared, &key, &update).await {
                Ok(()) => WorkResult::Done,
                Err(error) => {
                    tracing::debug!(pod = &*key, %error, "failed to update pod status, retrying");
                    shared.statuses.requeue(&key, update);
                    WorkResult::Failed
                }
            },
        };
        shared.statuses.queue.done(key, ended);
    }
}

async fn write(shared: &Shared, key: &Key, update: &StatusUpdate) -> Result<()> {
    let is_meant = |pod: &Arc<Tree>| pod.str("metadata.uid") == update.uid && pod.str("spec.nodeName").is_empty();
    let Some(pod) = shared.pods.get(key).filter(is_meant) else { return Ok(()) };
    let Some(patch) = patch(&pod, update, shared.handle.clock.now().seconds) else { return Ok(()) };
    let (namespace, name) = split(key);
    let patched = shared.handle.client.patch(PODS, namespace, name, "status", Patch::Strategic(&patch));
    match cause(key, &pod).scope(patched).await {
        Err(error) if error.is_not_found() => Ok(()),
        // If it is another pod by now, the store shows that before or soon after the retry.
        result => result.map(drop),
    }
}

/// The patch; None if the status is up to date.
fn patch(pod: &Tree, update: &StatusUpdate, now: i64) -> Option<Tree> {
    let mut status = tree! {};
    if let Some((reason, message)) = &update.condition {
        let known = pod.list("status.conditions").iter().find(|one| one.str("type") == "PodScheduled");
        let same = |field: &str, value: &str| known.is_some_and(|known| known.str(field) == value);
        if !(same("status", "False") && same("reason", reason) && same("message", message)) {
            let since =
                known.filter(|known| known.str("status") == "False").map(|known| known.str("lastTransitionTime"));
            let since = since.map_or_else(|| api::time::format_seconds(now), Into::into);
            status.set(
                "conditions",
                list![tree! {
                    "type" => "PodScheduled", "status" => "False", "reason" => *reason, "message" => message.as_str(),
                    "observedGeneration" => pod.int("metadata.generation").unwrap_or_default(),
                    "lastTransitionTime" => since,
                }],
            );
        }
    }
    let kept = pod.str("status.nominatedNodeName");
    match &update.nominated {
        NominationChange::Set(node) if node != kept => status.set("nominatedNodeName", node.clone()),
        NominationChange::Cleared if !kept.is_empty() => status.set("nominatedNodeName", Tree::Null),
        _ => {}
    }
    let is_empty = status.as_map().is_none_or(|map| map.is_empty());
    (!is_empty).then(|| tree! { "metadata" => tree! { "uid" => update.uid.clone() }, "status" => status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn update(message: &str, nominated: NominationChange) -> StatusUpdate {
        StatusUpdate { uid: "p".into(), condition: Some(("Unschedulable", message.to_string())), nominated }
    }

    #[test]
    fn writes_only_changed_status() {
        let fresh = pod("p");
        let first = patch(&fresh.0, &update("no", NominationChange::Unchanged), 0).expect("a patch");
        assert_eq!(first.list("status.conditions")[0].str("lastTransitionTime"), "1970-01-01T00:00:00Z");
        let updated = fresh.with("status.conditions", first.at("status.conditions").clone());
        assert_eq!(patch(&updated.0, &update("no", NominationChange::Cleared), 5), None);
        let other = patch(&updated.0, &update("never", NominationChange::Set("n".into())), 5).expect("a patch");
        assert_eq!(other.list("status.conditions")[0].str("lastTransitionTime"), "1970-01-01T00:00:00Z");
        assert_eq!(other.str("status.nominatedNodeName"), "n");
        let kept = updated.with("status.nominatedNodeName", "n");
        let cleared = patch(&kept.0, &update("no", NominationChange::Cleared), 5).expect("a patch");
        assert_eq!(cleared.at("status"), &tree! { "nominatedNodeName" => Tree::Null });
    }

    #[test]
    fn pending_updates_are_merged() {
        let before = update("no", NominationChange::Set("n".into()));
        let now = StatusUpdate { uid: "p".into(), condition: None, nominated: NominationChange::Unchanged };
        assert_eq!(merged(Some(before.clone()), now), before);
    }
}
