//! Writes statuses to the API: the newest of each pod, once per change, and the final one before the pod's object is
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Cause, Client, DeleteOptions, Error, Key, Patch, Queue, Resource, Store, WorkResult};
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::model::pod;

const PODS: Resource = Resource::core("pods");
/// The name in the causes of its writes.
const COMPONENT: &str = "kubelet";
/// The number of concurrent writes: each waits for the disk of the API server.
const WORKERS: usize = 16;
/// A new pod will soon have a better status: its first one waits for that a little.
const BEGINS: Duration = Duration::from_millis(150);
/// The API server gets statuses soon after it is reachable again, as with upstream's periodic sync.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Fields that only the kubelet sets; they are removed if it does not set them any more.
pub(crate) const OWN: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "startTime",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "resize",
];

pub(crate) const WHILE_RESIZED: [&str; 2] = [crate::resources::resize::PENDING, crate::resources::resize::IN_PROGRESS];

pub(crate) struct Writer {
    client: Client,
    /// The pods of this node, as the API has them.
    pods: Arc<Store>,
    entries: Mutex<BTreeMap<String, Entry>>,
    queue: Arc<Queue>,
    /// Notified when a status was written, or needed no write.
    moved: watch::Sender<()>,
}

struct Entry {
    namespace: String,
    name: String,
    status: Arc<Tree>,
    /// Nothing of the pod is left on the node.
    is_gone: bool,
    written: Option<LastWrite>,
}

/// The last write.
struct LastWrite {
    status: Arc<Tree>,
    /// The object after the write, until the informer has it.
    answer: Option<Arc<Tree>>,
    revision: Option<u64>,
}

/// The write that an object needs.
#[derive(Debug, PartialEq)]
pub(crate) enum StatusWrite {
    Nothing,
    Patch(Tree),
    Delete,
}

impl Writer {
    pub(crate) fn new(client: Client, pods: Arc<Store>) -> Arc<Writer> {
        Arc::new(Writer {
            client,
            pods,
            entries: Mutex::default(),
            queue: Arc::new(Queue::within(LONGEST_PAUSE)),
            moved: watch::Sender::default(),
        })
    }

    pub(crate) fn start(self: &Arc<Writer>) -> Vec<tokio::task::JoinHandle<()>> {
        (0..WORKERS).map(|_| tokio::spawn(self.clone().run())).collect()
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Waits until the API has the last statuses of these pods.
    pub(crate) async fn wait_until_written(&self, uids: &[String]) {
        let mut moved = self.moved.subscribe();
        let is_open = |uid: &String| self.next_write(uid).is_some_and(|(_, _, step)| step != StatusWrite::Nothing);
        while uids.iter().any(is_open) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// The last reported status; before the first, the status of the object, or of the mirror pod for a static pod.
    pub(crate) fn last(&self, pod: &Tree) -> Tree {
        if let Some(entry) = self.entries().get(pod::uid(pod)) {
            return Tree::clone(&entry.status);
        }
        if !pod::is_static(pod) {
            return pod.at("status").clone();
        }
        let seen = self.pods.get(&client::key(pod::namespace(pod), pod::name(pod)));
        let mirror = seen.filter(|seen| pod::is_mirror(seen) && pod::annotation(seen, pod::MIRROR) == pod::uid(pod));
        mirror.map(|mirror| mirror.at("status").clone()).unwrap_or_default()
    }

    pub(crate) fn set(&self, pod: &Tree, status: Tree) {
        let mut entries = self.entries();
        let begins = status.str("phase") == "Pending" && !pod.at("status").has("startTime");
        let entry = entries.entry(pod::uid(pod).to_string()).or_insert_with(|| Entry {
            namespace: pod::namespace(pod).to_string(),
            name: pod::name(pod).to_string(),
            status: Arc::default(),
            is_gone: false,
            written: None,
        });
        let same = *entry.status == status;
        if !same {
            entry.status = Arc::new(status);
        }
        drop(entries);
        let key = Key::from(pod::uid(pod));
        match (same, begins) {
            (true, _) => {}
            (false, true) => self.queue.add_after(key, BEGINS),
            (false, false) => self.queue.add(key),
        }
    }

    /// Nothing of the pod is left on this node: its object can be deleted once deletion was requested.
    pub(crate) fn mark_removed(&self, uid: &str) {
        if let Some(entry) = self.entries().get_mut(uid) {
            entry.is_gone = true;
        }
        self.queue.add(Key::from(uid));
    }

    /// The object has changed: its status may differ from the reported one.
    pub(crate) fn check(&self, uid: &str) {
        self.queue.add(Key::from(uid));
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.entries().remove(uid);
    }

    /// Removes the entries of all other pods.
    pub(crate) fn keep(&self, uids: &BTreeSet<String>) {
        self.entries().retain(|uid, _| uids.contains(uid));
    }

    async fn run(self: Arc<Writer>) {
        while let Some(key) = self.queue.next().await {
            let ended = match self.write(&key).await {
                Ok(()) => WorkResult::Done,
                Err(error) => {
                    tracing::debug!(uid = &*key, %error, "failed to update pod status");
                    WorkResult::Failed
                }
            };
            self.queue.done(key, ended);
            self.moved.send_replace(());
        }
    }

    async fn write(&self, uid: &str) -> client::Result<()> {
        let Some((object, status, step)) = self.next_write(uid) else { return Ok(()) };
        let (namespace, name) = (pod::namespace(&object), pod::name(&object));
        let revision = client::revision_of(&object).unwrap_or_default();
        let cause = Cause::object(COMPONENT, PODS, &client::key(namespace, name), revision);
        let answer = match &step {
            StatusWrite::Nothing => return Ok(()),
            StatusWrite::Patch(patch) => {
                cause.scope(self.client.patch(PODS, namespace, name, "status", Patch::Strategic(patch))).await
            }
            StatusWrite::Delete => {
                let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::of(&object) };
                cause.scope(self.client.delete(PODS, namespace, name, options)).await
            }
        };
        match answer {
            Ok(answer) => {
                if let StatusWrite::Patch(_) = step {
                    self.record_write(uid, status, answer);
                }
                Ok(())
            }
            // The pod was deleted, or another pod has its name.
            Err(error) if is_over(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The current object, and the write that it needs.
    fn next_write(&self, uid: &str) -> Option<(Arc<Tree>, Arc<Tree>, StatusWrite)> {
        let mut entries = self.entries();
        let entry = entries.get_mut(uid)?;
        let seen = self.pods.get(&client::key(&entry.namespace, &entry.name))?;
        let revision = client::revision_of(&seen);
        entry.written.take_if(|written| written.revision < revision);
        let answer = entry.written.as_mut().and_then(|written| written.pending_object(revision));
        let object = answer.unwrap_or(seen);
        // The status was written, even if the API server has changed it.
        let is_settled = entry.written.as_ref().is_some_and(|written| written.status == entry.status);
        let shown = if pod::is_mirror(&object) { pod::annotation(&object, pod::MIRROR) } else { pod::uid(&object) };
        let step = decide(&object, &entry.status, entry.is_gone, is_settled);
        (shown == uid).then(|| (object.clone(), entry.status.clone(), step))
    }

    /// Records a write, and continues with the next change.
    fn record_write(&self, uid: &str, status: Arc<Tree>, answer: Tree) {
        if let Some(entry) = self.entries().get_mut(uid) {
            let revision = client::revision_of(&answer);
            entry.written = Some(LastWrite { status, answer: Some(Arc::new(answer)), revision });
        }
        self.queue.add(Key::from(uid));
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock()
    }
}

impl LastWrite {
    /// The object after the last write, if the informer does not have it yet.
    fn pending_object(&mut self, shown: Option<u64>) -> Option<Arc<Tree>> {
        self.answer.take_if(|_| self.revision <= shown);
        self.answer.clone()
    }
}

fn is_over(error: &Error) -> bool {
    error.is_not_found() || error.is_conflict()
}

/// Decides which write gives an object this status.
pub(crate) fn decide(object: &Tree, status: &Tree, is_gone: bool, is_settled: bool) -> StatusWrite {
    if let Some(patch) = difference(object.at("status"), status).filter(|_| !is_settled) {
        let uid = pod::uid(object);
        return StatusWrite::Patch(tree! { "metadata" => tree! { "uid" => uid }, "status" => patch });
    }
    if is_gone && pod::is_deleted(object) { StatusWrite::Delete } else { StatusWrite::Nothing }
}

/// A merge patch; None if nothing differs.
fn difference(seen: &Tree, wanted: &Tree) -> Option<Tree> {
    let wanted_map = wanted.as_map()?;
    let mut patch = tree! {};
    for (key, value) in wanted_map.iter() {
        let differs = match key {
            "conditions" => !has_conditions(seen.at("conditions"), value) || stale(seen, value).next().is_some(),
            _ => seen.get(key) != Some(value),
        };
        match key {
            _ if !differs => {}
            "conditions" => patch.set(key, whole(value).into_iter().chain(stale(seen, value)).collect::<Vec<_>>()),
            "podIPs" | "hostIPs" => patch.set(key, replaced(value)),
            _ => patch.set(key, value.clone()),
        }
    }
    for key in OWN.iter().filter(|key| !wanted_map.contains(key) && seen.has(key)) {
        patch.set(key, Tree::Null);
    }
    patch.as_map().is_some_and(|map| !map.is_empty()).then_some(patch)
}

/// Conditions are merged field by field, so that missing fields have to be removed explicitly.
fn whole(conditions: &Tree) -> Vec<Tree> {
    let mut conditions = conditions.as_list().unwrap_or(&[]).to_vec();
    for condition in &mut conditions {
        ["reason", "message"].iter().for_each(|field| condition.set_default(field, Tree::Null));
    }
    conditions
}

/// Conditions that exist only while they are true, and are not any more.
fn stale<'a>(seen: &'a Tree, wanted: &'a Tree) -> impl Iterator<Item = Tree> + 'a {
    let has = |list: &Tree, name: &str| list.as_list().unwrap_or(&[]).iter().any(|one| one.str("type") == name);
    let gone = WHILE_RESIZED.iter().filter(move |name| has(seen.at("conditions"), name) && !has(wanted, name));
    gone.map(|name| tree! { "$patch" => "delete", "type" => *name })
}

/// Addresses are merged by their text: without a replacement, earlier ones would stay.
fn replaced(list: &Tree) -> Vec<Tree> {
    let all = list.as_list().unwrap_or(&[]).iter().cloned();
    [tree! { "$patch" => "replace" }].into_iter().chain(all).collect()
}

/// Other components have conditions in the same list.
fn has_conditions(seen: &Tree, wanted: &Tree) -> bool {
    let seen = seen.as_list().unwrap_or(&[]);
    let is_there = |condition: &Tree| {
        let old = seen.iter().find(|old| old.str("type") == condition.str("type"));
        let same = |field: &str, old: &Tree| same_field(old.at(field), condition.at(field));
        old.is_some_and(|old| {
            ["status", "reason", "message", "observedGeneration"].iter().all(|field| same(field, old))
        })
    };
    wanted.as_list().unwrap_or(&[]).iter().all(is_there)
}

fn same_field(a: &Tree, b: &Tree) -> bool {
    let empty = |tree: &Tree| matches!(tree, Tree::Null | Tree::Int(0)) || tree.as_str() == Some("");
    a == b || empty(a) && empty(b)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    #[test]
    fn writes_only_differences() {
        let condition = |status: &str| list![tree! { "type" => "Ready", "status" => status }];
        let object = |status: Tree| tree! { "metadata" => tree! { "uid" => "u" }, "status" => status };
        let running = || tree! { "phase" => "Running", "conditions" => condition("True") };
        let cases = [
            (object(running()), running(), "{}"),
            (object(tree! {}), tree! { "phase" => "Pending" }, r#"{"phase":"Pending"}"#),
            (object(running()), tree! { "phase" => "Running" }, "{}"),
            (
                object(tree! { "phase" => "Failed", "reason" => "Evicted" }),
                tree! { "phase" => "Failed" },
                r#"{"reason":null}"#,
            ),
            (object(tree! { "qosClass" => "Burstable" }), tree! {}, "{}"),
            (
                object(tree! { "conditions" => list![tree! { "type" => "PodResizePending" }] }),
                tree! { "conditions" => Tree::List(Vec::new()) },
                r#"{"conditions":[{"$patch":"delete","type":"PodResizePending"}]}"#,
            ),
            (
                object(tree! { "podIPs" => list![tree! { "ip" => "10.0.0.1" }] }),
                tree! { "podIPs" => list![tree! { "ip" => "10.0.0.2" }] },
                r#"{"podIPs":[{"$patch":"replace"},{"ip":"10.0.0.2"}]}"#,
            ),
        ];
        for (object, status, expected) in cases {
            let patch = match decide(&object, &status, false, false) {
                StatusWrite::Patch(patch) => patch.at("status").clone(),
                _ => tree! {},
            };
            assert_eq!(String::from_utf8_lossy(&api::json::encode(&patch, None)), expected);
        }
    }

    #[test]
    fn deletes_the_object_after_the_final_status() {
        let deleted = tree! { "metadata" => tree! { "uid" => "u", "deletionTimestamp" => "x" }, "status" => tree! {} };
        let alive = tree! { "metadata" => tree! { "uid" => "u" }, "status" => tree! {} };
        let status = tree! { "phase" => "Failed" };
        assert!(matches!(decide(&deleted, &status, true, false), StatusWrite::Patch(_)));
        assert_eq!(decide(&deleted, &tree! {}, true, false), StatusWrite::Delete);
        assert_eq!(decide(&deleted, &tree! {}, false, false), StatusWrite::Nothing);
        assert_eq!(decide(&deleted, &status, true, true), StatusWrite::Delete, "the API has it in its own words");
        assert_eq!(decide(&alive, &tree! {}, true, false), StatusWrite::Nothing);
    }
}
