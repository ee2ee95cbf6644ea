//! Reports to terminating pods when no service proxy sends them requests any more: kubelets stop containers only after
//! that. Proxies record on their Nodes which EndpointSlice revision they have applied. Kubelets only watch their own
//! pods and read a pod condition. Nothing is written if no proxy confirms.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Tree, list, tree};
use client::{Change, Index, Key, Patch, Queue, Resource, Result, Selection, Store, key_of, revision_of, split};
use stdx::sync::Mutex;

use crate::support::slices::SLICES;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::View;

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
/// EndpointSlices by `NAMESPACE/NAME` of their pods.
const BY_POD: Index =
    Index { name: "pod", values: |slice| plan::endpoint_states(slice).into_iter().map(|(key, _)| key).collect() };

struct Controller {
    pods: Arc<Store>,
    slices: Arc<Store>,
    state: Arc<Mutex<State>>,
    context: Context,
}

#[derive(Default)]
struct State {
    /// The applied revision of each node's proxy.
    applied: BTreeMap<Key, u64>,
    /// The revision from which no slice contains a terminating pod, with the pod's uid, by pod key.
    left: BTreeMap<Key, (String, u64)>,
    /// The revision at which a pod was removed from a slice, by pod key; u64::MAX if the removal was not observed.
    dropped: BTreeMap<Key, u64>,
    /// The newest revision of any slice, which a proxy that is up to date has applied.
    newest: u64,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let (pods, nodes) = (setup.informer(Selection::all(PODS)), setup.informer(Selection::all(NODES)));
    let slices = setup.informer(SLICES);
    slices.index_by(BY_POD);
    let state: Arc<Mutex<State>> = Arc::default();
    let (queue, known) = (context.queue.clone(), state.clone());
    pods.on_change(move |change| pod_changed(&queue, &known, change));
    let (queue, known, all) = (context.queue.clone(), state.clone(), pods.store().clone());
    slices.on_change(move |change| slice_changed(&queue, &known, |pod| all.get(pod).is_some(), change));
    let (queue, known, all) = (context.queue.clone(), state.clone(), slices.store().clone());
    nodes.on_change(move |change| node_changed(&queue, &known, &all, change));
    let (pods, slices) = (pods.store().clone(), slices.store().clone());
    Some(Box::new(Controller { pods, slices, state, context: context.clone() }))
}

fn pod_changed(queue: &Queue, state: &Mutex<State>, change: &Change) {
    match change.new.as_deref() {
        None => {
            let mut state = state.lock();
            state.left.remove(&change.key);
            state.dropped.remove(&change.key);
        }
        Some(pod) if pod.at("metadata").has("deletionTimestamp") => {
            // If no proxy confirms, the reconcile removes existing conditions.
            queue.add(change.key.clone());
        }
        Some(_) => {}
    }
}

/// Queues the pods whose state in the slice has changed.
fn slice_changed(queue: &Queue, state: &Mutex<State>, is_there: impl Fn(&str) -> bool, change: &Change) {
    let seen = |slice: Option<&Tree>| -> BTreeSet<(String, bool)> {
        slice.map(plan::endpoint_states).unwrap_or_default().into_iter().collect()
    };
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let mut state = state.lock();
    // The revision of a deletion is higher than that of the slice's last state.
    let revision = new.and_then(revision_of).or(change.deleted_at);
    state.newest = state.newest.max(revision.or_else(|| old.and_then(revision_of)).unwrap_or(0));
    let named = |slice: Option<&Tree>| -> BTreeSet<String> { seen(slice).into_iter().map(|(key, _)| key).collect() };
    for key in named(old).difference(&named(new)).filter(|key| is_there(key)) {
        state.dropped.insert(Key::from(key.as_str()), revision.unwrap_or(u64::MAX));
    }
    if state.applied.is_empty() {
        return;
    }
    seen(old).symmetric_difference(&seen(new)).for_each(|(key, _)| queue.add(Key::from(key.as_str())));
}

fn node_changed(queue: &Queue, state: &Mutex<State>, slices: &Store, change: &Change) {
    let applied = change.new.as_deref().and_then(plan::applied);
    let mut state = state.lock();
    let before = match applied {
        Some(applied) => state.applied.insert(change.key.clone(), applied),
        None => state.applied.remove(&change.key),
    };
    if before == applied {
        return;
    }
    let is_first = before.is_none() && state.applied.len() == 1;
    state.left.keys().for_each(|key| queue.add(key.clone()));
    drop(state);
    if is_first {
        let pods = slices.all().into_iter().flat_map(|slice| plan::endpoint_states(&slice));
        pods.for_each(|(key, _)| queue.add(Key::from(key.as_str())));
    }
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(pod) = self.pods.get(key) else { return Ok(Outcome::Done) };
        let Some(condition) = plan::plan(&pod, self.view(&pod, key), self.context.clock.now()) else {
            return Ok(Outcome::Done);
        };
        let patch = tree! {
            "metadata" => tree! { "uid" => pod.str("metadata.uid") },
            "status" => tree! { "conditions" => list![condition] },
        };
        let (namespace, name) = split(key);
        match self.context.client.patch(PODS, namespace, name, "status", Patch::Strategic(&patch)).await {
            // The pod was deleted or replaced by another one of the same name.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Done),
            result => result.map(|_| Outcome::Done),
        }
    }

    fn view(&self, pod: &Tree, key: &str) -> View {
        let slices = self.slices.find(BY_POD, key);
        let named =
            |slice: &Arc<Tree>| plan::endpoint_states(slice).into_iter().any(|(pod, is_in)| is_in && pod == key);
        let in_rotation = slices.iter().any(named);
        let ends = pod.at("metadata").has("deletionTimestamp");
        let mut state = self.state.lock();
        let dropped = state.dropped.get(key).copied();
        let newest = slices.iter().filter_map(|slice| revision_of(slice)).chain(dropped).max().unwrap_or(state.newest);
        let left_at = (ends && !in_rotation).then(|| {
            let uid = pod.str("metadata.uid");
            let left = state.left.entry(key_of(pod)).or_insert_with(|| (uid.to_string(), newest));
            // Another pod of the same name.
            if left.0 != uid {
                *left = (uid.to_string(), newest);
            }
            left.1
        });
        View { in_rotation, left_at, applied: state.applied.values().min().copied() }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(revision: u64, pods: &[&str]) -> String {
        let endpoint = |pod: &&str| format!(r#"{{"targetRef":{{"kind":"Pod","name":"{pod}"}}}}"#);
        let endpoints = pods.iter().map(endpoint).collect::<Vec<_>>().join(",");
        let metadata = format!(r#"{{"name":"s","namespace":"a","resourceVersion":"{revision}"}}"#);
        format!(r#"{{"metadata":{metadata},"endpoints":[{endpoints}]}}"#)
    }

    #[test]
    fn deleted_slices_count_from_their_deletion() {
        // The new endpoints of the slice, the revision of its deletion, and the expected revision for the pod.
        type Case<'a> = (Option<&'a [&'a str]>, Option<u64>, Option<u64>);
        let cases: [Case<'_>; 4] = [
            (Some(&["web", "other"]), None, None),
            (Some(&["other"]), None, Some(7)),
            (None, Some(9), Some(9)),
            (None, None, Some(u64::MAX)),
        ];
        for (new, deleted_at, expected) in cases {
            let (store, queue, state) = (Store::default(), Queue::default(), Mutex::new(State::default()));
            store.put(slice(5, &["web"]).into()).expect("a slice");
            let changes = match new {
                Some(pods) => store.put(slice(7, pods).into()).expect("a slice").0,
                None => store.delete("a/s").into_iter().collect(),
            };
            for change in changes {
                slice_changed(&queue, &state, |pod| pod == "a/web", &Change { deleted_at, ..change });
            }
            assert_eq!(state.lock().dropped.get("a/web").copied(), expected, "{new:?} {deleted_at:?}");
        }
    }
}
