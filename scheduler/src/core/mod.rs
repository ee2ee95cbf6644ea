//! The scheduler's state behind one lock: snapshot, queue, and deciders. Changes go in, steps come out. No I/O; time
//! is passed in.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use client::Random;
use tokio::time::Instant;

use crate::cycle::{CycleResult, Decision, Preemption, SchedulingAlgorithm};
use crate::explain::Records;
use crate::extender::{Candidates, Extenders};
use crate::framework::{Cycle, Failure, Permit, PermitRejection, Point, Profile, QueuedPod, Rejection, WaitingPods};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::snapshot::{NodeId, Objects, Snapshot};
use crate::specs::Specs;
use podmodel::{Node, Pod};

pub(crate) struct Core {
    pub snapshot: Snapshot,
    pub queue: Queue,
    pub records: Records,
    /// By scheduler name.
    deciders: BTreeMap<Str, SchedulingAlgorithm>,
    specs: Specs,
    random: Arc<Random>,
    pub extenders: Option<Arc<Extenders>>,
    /// Assumed pods that wait for permission.
    pub waiting: Arc<WaitingPods>,
    /// Uids of pods with a preemption in progress.
    preempting: BTreeSet<Str>,
    /// The uid of the pod being scheduled.
    current: Str,
    metrics: Metrics,
}

/// The next thing to do.
pub(crate) enum Step {
    /// Nothing until an event or this time.
    Idle(Option<Instant>),
    Bind(Placement),
    /// Extenders must be called first.
    CallExtenders(ExtenderCall),
    Wait(Box<Unschedulable>),
}

/// A pod that needs a call to extenders.
pub(crate) struct ExtenderCall {
    pub waiting: QueuedPod,
    pub profile: Arc<Profile>,
    pub about: ExtenderQuery,
}

pub(crate) enum ExtenderQuery {
    /// The nodes that passed the filters.
    Nodes(Vec<Str>),
    /// The preemption candidates.
    Candidates(Candidates),
}

/// A pod that was assumed on a node.
pub(crate) struct Placement {
    /// With the node's name.
    pub pod: Arc<Pod>,
    /// The node at the time of the decision.
    pub node: Arc<Node>,
    pub profile: Arc<Profile>,
    pub waiting: QueuedPod,
    pub decided: Instant,
}

/// A pod that found no node.
pub(crate) struct Unschedulable {
    pub pod: Arc<Pod>,
    pub profile: Arc<Profile>,
    pub message: String,
    /// Whether the attempt failed, rather than found no node.
    pub is_error: bool,
    pub nominated: NominationChange,
    /// The preemption victims.
    pub victims: Vec<Arc<Pod>>,
    /// Pods of lower priority nominated to the same node, whose nomination is cleared.
    pub displaced: Vec<Arc<Pod>>,
    pub rejected_by: Vec<&'static str>,
}

/// The change of a pod's nominated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NominationChange {
    Unchanged,
    Cleared,
    Set(Str),
}

impl Core {
    /// None if there is no profile, or two for one scheduler name.
    pub(crate) fn new(
        profiles: Vec<Arc<Profile>>,
        objects: Arc<dyn Objects>,
        random: Arc<Random>,
        metrics: Metrics,
    ) -> Option<Core> {
        let first = profiles.first()?;
        let sort = first.positions(Point::QueueSort).first()?;
        let queue = Queue::new(first.plugins()[*sort].plugin.clone());
        let count = profiles.len();
        let algorithm = |profile: Arc<Profile>| (profile.scheduler_name.clone(), SchedulingAlgorithm::new(profile));
        let deciders: BTreeMap<Str, SchedulingAlgorithm> = profiles.into_iter().map(algorithm).collect();
        (deciders.len() == count).then(|| Core {
            snapshot: Snapshot::new(objects),
            queue,
            records: Records::default(),
            deciders,
            specs: Specs::default(),
            random,
            extenders: None,
            waiting: Arc::default(),
            preempting: BTreeSet::new(),
            current: Str::default(),
            metrics,
        })
    }

    /// Schedules the next pod of the queue. Nothing changes between decision and assumption.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        let Some(waiting) = self.queue.pop(now) else { return Step::Idle(self.queue.next_due()) };
        self.decide(waiting, now)
    }

    /// Continues after the extenders responded, with the current state.
    pub(crate) fn resume(&mut self, asking: ExtenderCall, now: Instant) -> Step {
        let pod = asking.waiting.pod.clone();
        let is_waiting = self.queue.get(&pod.uid).is_some();
        let step = if is_waiting { self.decide(asking.waiting, now) } else { Step::Idle(Some(now)) };
        // Responses are kept until no further call is needed.
        if !matches!(step, Step::CallExtenders(_)) {
            self.drop_responses(&pod);
        }
        step
    }

    pub(crate) fn drop_responses(&self, pod: &Pod) {
        if let Some(extenders) = &self.extenders {
            extenders.forget(pod);
        }
    }

    fn decide(&mut self, waiting: QueuedPod, now: Instant) -> Step {
        let pod = waiting.pod.clone();
        self.current = pod.uid.clone();
        let Some(algorithm) = self.deciders.get_mut(&pod.scheduler_name) else {
            self.queue.remove(&pod.uid);
            return self.step(now);
        };
        let profile = algorithm.profile.clone();
        let CycleResult { decision, slots, found, times } = algorithm.decide(&mut self.snapshot, &pod, &self.random);
        for (point, took) in times.points {
            self.metrics.point(point, &profile.scheduler_name, true, took);
        }
        for timed in times.plugins {
            let plugin = profile.plugin(timed.position).name();
            self.metrics.plugin(plugin, timed.point, timed.is_well, timed.took);
        }
        let must_call_extenders = self.extenders.as_ref().is_some_and(|extenders| extenders.must_be_called(&pod));
        if must_call_extenders && matches!(decision, Decision::Place { .. }) {
            let name = |id: &NodeId| self.snapshot.node(*id).map(|state| state.node.name.clone());
            let about = ExtenderQuery::Nodes(found.iter().filter_map(name).collect());
            return Step::CallExtenders(ExtenderCall { waiting, profile, about });
        }
        if let Some(candidates) = self.extenders.as_ref().and_then(|extenders| extenders.pending_candidates(&pod)) {
            return Step::CallExtenders(ExtenderCall {
                waiting,
                profile,
                about: ExtenderQuery::Candidates(candidates),
            });
        }
        let refused = match decision {
            Decision::Place { node, .. } => match self.reserve(&profile, &pod, node, &slots, now) {
                Ok(assumed) => return self.place(profile, waiting, assumed, node, now),
                Err((position, rejection)) => {
                    let failure = Failure::for_all_nodes(1, position, rejection);
                    return self.wait(profile, pod, failure, None, false, now);
                }
            },
            Decision::Wait { failure, preemption, is_cleared } => (failure, preemption, is_cleared),
        };
        let (failure, preemption, is_cleared) = refused;
        self.wait(profile, pod, failure, preemption, is_cleared, now)
    }

    /// Runs Reserve and Permit.
    fn reserve(
        &mut self,
        profile: &Profile,
        pod: &Arc<Pod>,
        node: NodeId,
        slots: &[crate::framework::Slot],
        now: Instant,
    ) -> Result<Arc<Pod>, (usize, Rejection)> {
        let Some(state) = self.snapshot.node(node) else {
            return Err((0, Rejection::unschedulable("the node was deleted")));
        };
        let cycle = Cycle { snapshot: &self.snapshot, pod };
        let mut verdict = Ok(());
        for (position, plugin) in profile.at(Point::Reserve) {
            verdict =
                verdict.and_then(|()| plugin.reserve(cycle, &slots[position], state).map_err(|why| (position, why)));
        }
        let pending = verdict.and_then(|()| permit(profile, &self.waiting, pod, state.name()));
        let pending = pending.inspect_err(|_| profile.unreserve(pod, state.name()))?;
        if !pending.is_empty() {
            self.waiting.add(pod.clone(), state.node.name.clone(), pending, now);
        }
        Ok(Arc::new(Pod { node_name: state.node.name.clone(), ..Pod::clone(pod) }))
    }

    fn place(
        &mut self,
        profile: Arc<Profile>,
        waiting: QueuedPod,
        assumed: Arc<Pod>,
        node: NodeId,
        now: Instant,
    ) -> Step {
        let node = self.snapshot.node(node).map(|state| state.node.clone()).unwrap_or_default();
        self.snapshot.remove_nomination(&assumed.uid);
        self.snapshot.assume(assumed.clone());
        self.records.remove(&assumed.key);
        Step::Bind(Placement { pod: assumed, node, profile, waiting, decided: now })
    }

    fn wait(
        &mut self,
        profile: Arc<Profile>,
        pod: Arc<Pod>,
        failure: Failure,
        preemption: Option<Preemption>,
        is_cleared: bool,
        now: Instant,
    ) -> Step {
        Step::Wait(Box::new(self.waits(profile, pod, failure, preemption, is_cleared, now)))
    }

    fn waits(
        &mut self,
        profile: Arc<Profile>,
        pod: Arc<Pod>,
        failure: Failure,
        preemption: Option<Preemption>,
        is_cleared: bool,
        now: Instant,
    ) -> Unschedulable {
        let rejected_by = failure.plugins(&profile);
        let error = failure.error_message(&profile);
        let is_error = error.is_some();
        let message = error.unwrap_or_else(|| failure.message());
        self.records.put(&pod, &profile, &self.snapshot, failure);
        let mut waits = Unschedulable {
            pod: pod.clone(),
            profile,
            message,
            is_error,
            nominated: NominationChange::Unchanged,
            victims: Vec::new(),
            displaced: Vec::new(),
            rejected_by,
        };
        match preemption {
            Some(preemption) => self.start_preemption(&mut waits, preemption),
            None if waits.is_error => self.queue.retry(&pod.uid, now),
            None => self.mark_unschedulable(&pod.uid, waits.rejected_by.clone(), now),
        }
        if is_cleared {
            self.snapshot.remove_nomination(&pod.uid);
            waits.nominated = NominationChange::Cleared;
        }
        waits
    }

    /// Nominates the node; the pod is queued again once its victims were deleted.
    fn start_preemption(&mut self, waits: &mut Unschedulable, preemption: Preemption) {
        let name = self.snapshot.node(preemption.node).map(|state| state.node.name.clone()).unwrap_or_default();
        let lower = |other: &&Arc<Pod>| other.priority < waits.pod.priority;
        waits.displaced = self.snapshot.nominated(&name).iter().filter(lower).cloned().collect();
        waits.displaced.iter().for_each(|other| self.snapshot.remove_nomination(&other.uid));
        self.snapshot.nominate(waits.pod.clone(), &name);
        self.preempting.insert(waits.pod.uid.clone());
        waits.victims = preemption.victims;
        waits.nominated = NominationChange::Set(name);
    }

    /// The victims were deleted: the pod waits for them to terminate.
    pub(crate) fn preemption_done(&mut self, uid: &str, rejected_by: Vec<&'static str>, now: Instant) {
        self.preempting.remove(uid);
        self.mark_unschedulable(uid, rejected_by, now);
    }

    fn mark_unschedulable(&mut self, uid: &str, rejected_by: Vec<&'static str>, now: Instant) {
        self.queue.mark_unschedulable(uid, rejected_by, now);
        self.count(uid, "ScheduleAttemptFailure");
    }

    /// Counts a pod in its current queue.
    fn count(&self, uid: &str, event: &str) {
        if let Some((_, place)) = self.queue.get(uid) {
            self.metrics.pod_queued(place.label(), event);
        }
    }

    /// The victims could not be deleted: the pod is retried.
    pub(crate) fn preemption_failed(&mut self, uid: &str, now: Instant) {
        self.preempting.remove(uid);
        self.snapshot.remove_nomination(uid);
        self.queue.retry(uid, now);
    }

    /// The scheduling cycle panicked: the pod is retried with backoff.
    pub(crate) fn recover(&mut self, now: Instant) {
        let uid = std::mem::take(&mut self.current);
        self.snapshot.forget(&uid);
        self.queue.retry(&uid, now);
    }

    /// The pod was bound: it leaves the queue.
    pub(crate) fn bound(&mut self, uid: &str) {
        self.queue.remove(uid);
    }

    /// The binding failed: the assumption is undone, and the pod is retried if it still exists.
    pub(crate) fn not_bound(&mut self, placement: &Placement, now: Instant) {
        self.release(placement, now);
        self.queue.retry(&placement.pod.uid, now);
        self.count(&placement.pod.uid, "ScheduleAttemptFailure");
    }

    fn release(&mut self, placement: &Placement, now: Instant) {
        let pod = &placement.pod;
        self.waiting.remove(&pod.uid);
        placement.profile.unreserve(pod, &pod.node_name);
        if self.snapshot.is_assumed(&pod.uid) {
            self.snapshot.forget(&pod.uid);
            self.notify(&crate::framework::Event::PodDeleted(pod), now);
        }
    }

    /// A pod was rejected by Permit: it waits for events of the rejecting plugin.
    pub(crate) fn not_permitted(
        &mut self,
        placement: &Placement,
        rejected: &PermitRejection,
        now: Instant,
    ) -> Option<Unschedulable> {
        let (pod, profile) = (&placement.waiting.pod, &placement.profile);
        self.release(placement, now);
        // A deleted pod, or one rejected at shutdown, is not queued.
        let position = profile.position_of(rejected.plugin)?;
        self.queue.get(&pod.uid)?;
        let failure = Failure::for_all_nodes(1, position, Rejection::unschedulable(rejected.why.clone()));
        Some(self.waits(profile.clone(), pod.clone(), failure, None, false, now))
    }

    /// Whether the decision is still valid after the node has changed.
    pub(crate) fn still_fits(&mut self, placement: &Placement) -> bool {
        let Some(state) = self.snapshot.find(&placement.pod.node_name) else { return false };
        if Arc::ptr_eq(&state.node, &placement.node) {
            return true;
        }
        let waiting = Arc::new(Pod { node_name: Str::default(), ..Pod::clone(&placement.pod) });
        let node = state.id;
        crate::cycle::still_fits(&placement.profile, &mut self.snapshot, &waiting, node)
    }

    pub(crate) fn algorithm(
        &mut self,
        scheduler_name: &str,
    ) -> Option<(&mut SchedulingAlgorithm, &mut Snapshot, &Random)> {
        Some((self.deciders.get_mut(scheduler_name)?, &mut self.snapshot, &self.random))
    }

    /// Number of cycles in which each plugin was evaluated: scheduler, plugin, point.
    pub(crate) fn evaluations(&self) -> Vec<(Str, &'static str, Point, u64)> {
        let of = |(name, algorithm): (&Str, &SchedulingAlgorithm)| {
            let plugin = |position: usize| algorithm.profile.plugin(position).name();
            let all = algorithm.evaluations.all();
            all.map(|(position, point, count)| (name.clone(), plugin(position), point, count)).collect::<Vec<_>>()
        };
        self.deciders.iter().flat_map(of).collect()
    }

    pub(crate) fn is_ours(&self, pod: &Pod) -> bool {
        self.deciders.contains_key(&pod.scheduler_name)
    }
}

/// The plugins that want the pod to wait, and for how long. All are called before any rejection counts.
fn permit(
    profile: &Profile,
    waiting: &Arc<WaitingPods>,
    pod: &Pod,
    node: &str,
) -> Result<Vec<(&'static str, Duration)>, (usize, Rejection)> {
    let mut pending = Vec::new();
    for (position, plugin) in profile.at(Point::Permit) {
        match plugin.permit(waiting, pod, node) {
            Permit::Allow => {}
            Permit::Wait(time) => pending.push((plugin.name(), time)),
            Permit::Refuse(rejection) => return Err((position, rejection)),
        }
    }
    Ok(pending)
}

#[cfg(test)]
mod tests;
