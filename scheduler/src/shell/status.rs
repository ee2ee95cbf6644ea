//! What waiting pods say of themselves: the condition PodScheduled and the node that is kept for them. The last
//! word on a pod is what is written, one write at a time for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree, list, tree};
use client::{Ended, Key, Patch, Queue, Result, split};
use stdx::sync::{Mutex, MutexGuard};

use super::{PODS, Shared};
use crate::core::Nominated;
use crate::model::Pod;

pub const WRITERS: usize = 8;

/// What is to be said of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    uid: Str,
    /// Reason and message.
    condition: Option<(&'static str, String)>,
    nominated: Nominated,
}

pub struct Statuses {
    pub queue: Arc<Queue>,
    wanted: Mutex<BTreeMap<Key, Wanted>>,
}

impl Statuses {
    pub fn new(queue: Arc<Queue>) -> Statuses {
        Statuses { queue, wanted: Mutex::default() }
    }

    /// What is not said now stays as it was last wanted.
    pub fn want(&self, pod: &Pod, condition: Option<(&'static str, &str)>, nominated: Nominated) {
        let condition = condition.map(|(reason, message)| (reason, message.to_string()));
        let wanted = Wanted { uid: pod.uid.clone(), condition, nominated };
        let mut all = self.all();
        let before = all.remove(&pod.key).filter(|before| before.uid == wanted.uid);
        all.insert(pod.key.clone(), merged(before, wanted));
        drop(all);
        self.queue.add(pod.key.clone());
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Wanted>> {
        self.wanted.lock()
    }

    /// It could not be written: it is wanted still, unless something newer is.
    fn again(&self, key: &Key, failed: Wanted) {
        let mut all = self.all();
        let newer = all.remove(key);
        let wanted = match newer {
            Some(newer) if newer.uid != failed.uid => newer,
            Some(newer) => merged(Some(failed), newer),
            None => failed,
        };
        all.insert(key.clone(), wanted);
    }
}

fn merged(before: Option<Wanted>, now: Wanted) -> Wanted {
    let Some(before) = before else { return now };
    let nominated = if now.nominated == Nominated::Unchanged { before.nominated } else { now.nominated };
    Wanted { uid: now.uid, condition: now.condition.or(before.condition), nominated }
}

pub async fn write_all(shared: Arc<Shared>) {
    while let Some(key) = shared.statuses.queue.next().await {
        let wanted = shared.statuses.all().remove(&key);
        let ended = match wanted {
            None => Ended::Done,
            Some(wanted) => match write(&shared, &key, &wanted).await {
                Ok(()) => Ended::Done,
                Err(error) => {
                    tracing::debug!(pod = &*key, %error, "its status is written again");
                    shared.statuses.again(&key, wanted);
                    Ended::Failed
                }
            },
        };
        shared.statuses.queue.done(key, ended);
    }
}

async fn write(shared: &Shared, key: &Key, wanted: &Wanted) -> Result<()> {
    let is_meant = |pod: &Arc<Tree>| pod.str("metadata.uid") == wanted.uid && pod.str("spec.nodeName").is_empty();
    let Some(pod) = shared.pods.get(key).filter(is_meant) else { return Ok(()) };
    let Some(patch) = patch(&pod, wanted, shared.hands.clock.now().seconds) else { return Ok(()) };
    let (namespace, name) = split(key);
    match shared.hands.client.patch(PODS, namespace, name, "status", Patch::Strategic(&patch)).await {
        Err(error) if error.is_not_found() => Ok(()),
        // Where it is another pod by now, the store shows that before it is tried again, or soon after.
        result => result.map(drop),
    }
}

/// What to change; None where the pod says it already.
fn patch(pod: &Tree, wanted: &Wanted, now: i64) -> Option<Tree> {
    let mut status = tree! {};
    if let Some((reason, message)) = &wanted.condition {
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
    match &wanted.nominated {
        Nominated::Set(node) if node != kept => status.set("nominatedNodeName", node.clone()),
        Nominated::Cleared if !kept.is_empty() => status.set("nominatedNodeName", Tree::Null),
        _ => {}
    }
    let is_empty = status.as_map().is_none_or(|map| map.is_empty());
    (!is_empty).then(|| tree! { "metadata" => tree! { "uid" => wanted.uid.clone() }, "status" => status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn wanted(message: &str, nominated: Nominated) -> Wanted {
        Wanted { uid: "p".into(), condition: Some(("Unschedulable", message.to_string())), nominated }
    }

    #[test]
    fn a_status_is_written_only_where_it_differs() {
        let fresh = pod("p");
        let first = patch(&fresh.0, &wanted("no", Nominated::Unchanged), 0).expect("a patch");
        assert_eq!(first.list("status.conditions")[0].str("lastTransitionTime"), "1970-01-01T00:00:00Z");
        let said = fresh.with("status.conditions", first.at("status.conditions").clone());
        assert_eq!(patch(&said.0, &wanted("no", Nominated::Cleared), 5), None);
        let other = patch(&said.0, &wanted("never", Nominated::Set("n".into())), 5).expect("a patch");
        assert_eq!(other.list("status.conditions")[0].str("lastTransitionTime"), "1970-01-01T00:00:00Z");
        assert_eq!(other.str("status.nominatedNodeName"), "n");
        let kept = said.with("status.nominatedNodeName", "n");
        let cleared = patch(&kept.0, &wanted("no", Nominated::Cleared), 5).expect("a patch");
        assert_eq!(cleared.at("status"), &tree! { "nominatedNodeName" => Tree::Null });
    }

    #[test]
    fn what_is_not_said_stays_as_it_was_wanted() {
        let before = wanted("no", Nominated::Set("n".into()));
        let now = Wanted { uid: "p".into(), condition: None, nominated: Nominated::Unchanged };
        assert_eq!(merged(Some(before.clone()), now), before);
    }
}
