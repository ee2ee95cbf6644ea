//! Applies cluster changes to the snapshot and the queue.

use std::sync::Arc;

use api::Tree;
use tokio::time::Instant;

use super::Core;
use crate::cycle::find_permanent_rejection;
use crate::framework::{Event, Point, Profile, QueuedPod};
use crate::snapshot::{Kind, NodeState, Snapshot};
use podmodel::{Labels, Node, Pod, Spec};

impl Core {
    /// Adds or updates a pod.
    pub(crate) fn pod_changed(&mut self, pod: &Tree, now: Instant) {
        let pod = self.specs.intern(Pod::read(pod));
        if pod.is_over {
            self.pod_deleted(&pod.uid, now);
        } else if pod.node_name.is_empty() {
            self.pending_pod_changed(pod, now);
        } else {
            self.placed_changed(pod, now);
        }
    }

    /// Removes a deleted or finished pod.
    pub(crate) fn pod_deleted(&mut self, uid: &str, now: Instant) {
        self.waiting.reject(uid, "it is gone");
        let kept = self.snapshot.nominated_node(uid).is_some();
        self.snapshot.remove_nomination(uid);
        let waiting = self.queue.remove(uid).map(|waiting| waiting.pod);
        if let Some(pod) = &waiting {
            self.records.remove(&pod.key);
        }
        let placed = self.snapshot.placed(uid).cloned();
        self.snapshot.remove_pod(uid);
        // A nominated pod releases its place like an assigned one.
        if let Some(pod) = placed.or(waiting.filter(|_| kept)) {
            self.notify(&Event::PodDeleted(&pod), now);
        }
    }

    fn placed_changed(&mut self, pod: Arc<Pod>, now: Instant) {
        self.queue.remove(&pod.uid);
        self.records.remove(&pod.key);
        self.snapshot.remove_nomination(&pod.uid);
        let confirmed = self.snapshot.is_assumed(&pod.uid);
        let old = self.snapshot.placed(&pod.uid).filter(|_| !confirmed).cloned();
        self.snapshot.put_pod(pod.clone());
        match old {
            None => self.notify(&Event::PodPlaced(&pod), now),
            Some(old) if old.spec != pod.spec || old.labels != pod.labels => {
                self.notify(&Event::PodChanged { old: &old, new: &pod }, now);
            }
            Some(_) => {}
        }
    }

    fn pending_pod_changed(&mut self, pod: Arc<Pod>, now: Instant) {
        if self.snapshot.is_assumed(&pod.uid) {
            // The watch is behind the decision.
            return;
        }
        if !self.is_ours(&pod) || pod.is_terminating {
            self.pod_deleted(&pod.uid, now);
            return;
        }
        self.follow_nominated(&pod);
        let gated_by = self.gated_by(&pod);
        let Some(old) = self.queue.get(&pod.uid).map(|(waiting, _)| waiting.pod.clone()) else {
            self.queue.add(pod.clone(), gated_by, now);
            return self.count(&pod.uid, "PodAdd");
        };
        self.queue.update(pod.clone());
        self.queue.gate(&pod.uid, gated_by);
        if is_changed_for_scheduling(&old, &pod) {
            self.notify_pod_update(&old, &pod, now);
        }
    }

    /// Follows only changes of `nominatedNodeName` in the API: newer decisions are still being written.
    fn follow_nominated(&mut self, pod: &Arc<Pod>) {
        let shown = self.queue.get(&pod.uid).map(|(waiting, _)| waiting.pod.nominated_node_name.clone());
        let (shown, now) = (shown.unwrap_or_default(), &pod.nominated_node_name);
        if shown == *now {
            return;
        }
        if !now.is_empty() {
            self.snapshot.nominate(pod.clone(), now);
        } else if self.snapshot.nominated_node(&pod.uid) == Some(&shown) {
            self.snapshot.remove_nomination(&pod.uid);
        }
    }

    /// The plugin that gates a pod.
    fn gated_by(&self, pod: &Pod) -> Option<&'static str> {
        let profile = &self.deciders.get(&pod.scheduler_name)?.profile;
        let refuses =
            profile.at(Point::PreEnqueue).find(|(_, plugin)| plugin.pre_enqueue(&self.snapshot, pod).is_err());
        refuses.map(|(_, plugin)| plugin.name())
    }

    pub(crate) fn node_changed(&mut self, name: &str, node: Option<&Tree>, now: Instant) {
        let old = self.snapshot.find(name).map(|state| state.node.clone());
        match (old, node.map(Node::read)) {
            (None, None) => {}
            (Some(old), None) => {
                self.snapshot.remove_node(name);
                self.notify(&Event::NodeDeleted(&old), now);
            }
            (None, Some(new)) => {
                self.snapshot.put_node(new.clone());
                self.notify(&Event::NodeAdded(&new), now);
            }
            (Some(old), Some(new)) if *old != new => {
                self.snapshot.put_node(new.clone());
                self.notify(&Event::NodeChanged { old: &old, new: &new }, now);
            }
            (Some(_), Some(_)) => {}
        }
    }

    pub(crate) fn namespace_changed(&mut self, name: &str, namespace: Option<&Tree>, now: Instant) {
        let labels = namespace.map(|namespace| Labels::read(namespace.map("metadata.labels")));
        if labels.as_ref() == Some(self.snapshot.namespace_labels(name)) {
            return;
        }
        self.snapshot.set_namespace(name, labels);
        self.notify(&Event::NamespaceChanged, now);
    }

    pub(crate) fn object_changed(&mut self, kind: Kind, old: Option<&Tree>, new: Option<&Tree>, now: Instant) {
        self.snapshot.object_changed(kind, old, new);
        let event = Event::Object { kind, old, new };
        self.update_gates(&event);
        self.notify(&event, now);
    }

    /// Lets pods into the active queue whose gating plugin accepts them after an event.
    fn update_gates(&mut self, event: &Event) {
        let is_helped = |waiting: &QueuedPod| {
            let profile = self.deciders.get(&waiting.pod.scheduler_name).map(|algorithm| &algorithm.profile);
            profile.is_some_and(|profile| may_help(profile, waiting, event) != QueueingHint::No)
        };
        let helped: Vec<Arc<Pod>> =
            self.queue.gated().filter(|waiting| is_helped(waiting)).map(|one| one.pod.clone()).collect();
        for pod in helped {
            let gated_by = self.gated_by(&pod);
            self.queue.gate(&pod.uid, gated_by);
        }
    }

    /// Requeues the pods that an event may help.
    pub(crate) fn notify(&mut self, event: &Event, now: Instant) {
        let (deciders, snapshot) = (&self.deciders, &self.snapshot);
        let node = node_of(event).and_then(|name| snapshot.find(name));
        let mut hopes = RejectionCache::default();
        let helped = |waiting: &mut QueuedPod| {
            let Some(profile) = deciders.get(&waiting.pod.scheduler_name).map(|algorithm| &algorithm.profile) else {
                return false;
            };
            match (may_help(profile, waiting, event), node) {
                (QueueingHint::No, _) => false,
                (QueueingHint::AtNode, Some(node)) => hopes.is_acceptable(profile, snapshot, waiting, node),
                _ => true,
            }
        };
        let places = self.queue.requeue_by_event(now, helped);
        places.iter().for_each(|place| self.metrics.pod_queued(place.label(), &event.label()));
        self.preempting.iter().for_each(|uid| self.queue.record_missed_event(uid));
    }

    fn notify_pod_update(&mut self, old: &Pod, new: &Pod, now: Instant) {
        let event = Event::SelfChanged { old, new };
        let Some(profile) = self.deciders.get(&new.scheduler_name).map(|algorithm| algorithm.profile.clone()) else {
            return;
        };
        let helps = self
            .queue
            .get(&new.uid)
            .is_some_and(|(waiting, _)| may_help(&profile, waiting, &event) != QueueingHint::No);
        if helps {
            self.queue.requeue(&new.uid, now);
        }
    }
}

fn is_changed_for_scheduling(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec
        || old.labels != new.labels
        || old.gates != new.gates
        || old.claim_statuses != new.claim_statuses
}

/// How an event may help a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueingHint {
    No,
    /// Only plugins that check single nodes may accept: only this node needs a check.
    AtNode,
    Anywhere,
}

/// A pod without rejecting plugins is helped by any event.
fn may_help(profile: &Profile, waiting: &QueuedPod, event: &Event) -> QueueingHint {
    if waiting.rejected_by.is_empty() {
        return QueueingHint::Anywhere;
    }
    let mut help = QueueingHint::No;
    for name in &waiting.rejected_by {
        let Some(position) = profile.position_of(name) else { return QueueingHint::Anywhere };
        let plugin = profile.plugin(position);
        match (plugin.may_help(&waiting.pod, event), plugin.is_local()) {
            (false, _) => {}
            (true, true) => help = QueueingHint::AtNode,
            (true, false) => return QueueingHint::Anywhere,
        }
    }
    help
}

/// The only node that an event affects.
fn node_of<'a>(event: &'a Event) -> Option<&'a str> {
    match event {
        Event::PodDeleted(pod) | Event::PodChanged { new: pod, .. } => Some(&pod.node_name),
        Event::NodeAdded(node) | Event::NodeChanged { new: node, .. } => Some(&node.name),
        _ => None,
    }
}

/// The first plugin that rejects a node, cached for equal pods.
#[derive(Default)]
struct RejectionCache(Vec<(Arc<Spec>, i32, Option<&'static str>)>);

impl RejectionCache {
    /// A pod that another plugin rejects now also waits for events of that plugin.
    fn is_acceptable(
        &mut self,
        profile: &Profile,
        snapshot: &Snapshot,
        waiting: &mut QueuedPod,
        node: &NodeState,
    ) -> bool {
        let kept = self.kept(profile, snapshot, &waiting.pod, node);
        let Some(plugin) = kept else { return true };
        if !waiting.rejected_by.contains(&plugin) {
            waiting.rejected_by.push(plugin);
        }
        false
    }

    fn kept(
        &mut self,
        profile: &Profile,
        snapshot: &Snapshot,
        pod: &Arc<Pod>,
        node: &NodeState,
    ) -> Option<&'static str> {
        let same = |known: &&(Arc<Spec>, i32, _)| Arc::ptr_eq(&known.0, &pod.spec) && known.1 == pod.priority;
        if let Some((_, _, kept)) = self.0.iter().find(same) {
            return *kept;
        }
        let kept = find_permanent_rejection(profile, snapshot, pod, node);
        self.0.push((pod.spec.clone(), pod.priority, kept));
        kept
    }
}
