//! All that a scheduler knows, behind one lock: the snapshot, the queue, and who decides for whom. Changes go
//! in, steps come out. No I/O; the time comes from outside.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use client::Random;
use tokio::time::Instant;

use crate::cycle::{Decided, Decider, Decision, Failure, Preemption};
use crate::extender::{Extenders, Rooms};
use crate::framework::{Cycle, Permit, Point, Refusal};
use crate::metrics::Metrics;
use crate::model::{Node, Pod};
use crate::permit::{Rejected, WaitingPods};
use crate::profile::Profile;
use crate::queue::{Queue, Waiting};
use crate::snapshot::{NodeId, Objects, Snapshot};
use crate::specs::Specs;
use crate::why::Records;

pub struct Core {
    pub snapshot: Snapshot,
    pub queue: Queue,
    pub records: Records,
    /// By the name of the scheduler.
    deciders: BTreeMap<Str, Decider>,
    specs: Specs,
    random: Arc<Random>,
    pub extenders: Option<Arc<Extenders>>,
    /// Those that have a node and wait for leave.
    pub waiting: Arc<WaitingPods>,
    /// Pods that are making room for themselves: uids.
    making_room: BTreeSet<Str>,
    /// The uid of the pod that is decided about.
    current: Str,
    metrics: Metrics,
}

/// What there is to do.
pub enum Step {
    /// Nothing, until something happens or this time comes.
    Idle(Option<Instant>),
    Bind(Placing),
    /// Extenders are to be asked something first.
    Ask(Asking),
    Wait(Box<Waits>),
}

/// A pod that extenders have a say about.
pub struct Asking {
    pub waiting: Waiting,
    pub profile: Arc<Profile>,
    pub about: About,
}

pub enum About {
    /// The nodes that plugins have found.
    Nodes(Vec<Str>),
    /// The ways to make room.
    Rooms(Rooms),
}

/// A pod that has a node, as far as this scheduler is concerned.
pub struct Placing {
    /// With the node's name in it.
    pub pod: Arc<Pod>,
    /// The node as it was decided upon.
    pub node: Arc<Node>,
    pub profile: Arc<Profile>,
    pub waiting: Waiting,
    pub decided: Instant,
}

/// A pod that found no node.
pub struct Waits {
    pub pod: Arc<Pod>,
    pub profile: Arc<Profile>,
    pub message: String,
    pub nominated: Nominated,
    /// Pods that go for it.
    pub victims: Vec<Arc<Pod>>,
    /// Pods of less priority for which the same node was kept: they look for another.
    pub displaced: Vec<Arc<Pod>>,
    pub refused_by: Vec<&'static str>,
}

/// What becomes of the node that is kept for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nominated {
    Unchanged,
    Cleared,
    Set(Str),
}

impl Core {
    /// None where there is no profile, or two are for the same pods.
    pub fn new(
        profiles: Vec<Arc<Profile>>,
        objects: Arc<dyn Objects>,
        random: Arc<Random>,
        metrics: Metrics,
    ) -> Option<Core> {
        let first = profiles.first()?;
        let sort = first.positions(Point::QueueSort).first()?;
        let queue = Queue::new(first.plugins()[*sort].plugin.clone());
        let count = profiles.len();
        let decider = |profile: Arc<Profile>| (profile.scheduler_name.clone(), Decider::new(profile));
        let deciders: BTreeMap<Str, Decider> = profiles.into_iter().map(decider).collect();
        (deciders.len() == count).then(|| Core {
            snapshot: Snapshot::new(objects),
            queue,
            records: Records::default(),
            deciders,
            specs: Specs::default(),
            random,
            extenders: None,
            waiting: Arc::default(),
            making_room: BTreeSet::new(),
            current: Str::default(),
            metrics,
        })
    }

    /// Decides for the next pod whose turn it is. Nothing changes between the look and the assumption.
    pub fn step(&mut self, now: Instant) -> Step {
        let Some(waiting) = self.queue.pop(now) else { return Step::Idle(self.queue.next_due()) };
        self.decide(waiting, now)
    }

    /// Extenders have answered: the decision is made with what they said, as things are now.
    pub fn answered(&mut self, asking: Asking, now: Instant) -> Step {
        let pod = asking.waiting.pod.clone();
        let is_waiting = self.queue.get(&pod.uid).is_some();
        let step = if is_waiting { self.decide(asking.waiting, now) } else { Step::Idle(Some(now)) };
        // What was said is heeded until nothing more is to be asked.
        if !matches!(step, Step::Ask(_)) {
            self.forget_said(&pod);
        }
        step
    }

    pub fn forget_said(&self, pod: &Pod) {
        if let Some(extenders) = &self.extenders {
            extenders.forget(pod);
        }
    }

    fn decide(&mut self, waiting: Waiting, now: Instant) -> Step {
        let pod = waiting.pod.clone();
        self.current = pod.uid.clone();
        let Some(decider) = self.deciders.get_mut(&pod.scheduler_name) else {
            self.queue.remove(&pod.uid);
            return self.step(now);
        };
        let profile = decider.profile.clone();
        let Decided { decision, slots, found, times } = decider.decide(&mut self.snapshot, &pod, &self.random);
        for (point, took) in times.points {
            self.metrics.point(point, &profile.scheduler_name, true, took);
        }
        for timed in times.plugins {
            let plugin = profile.plugin(timed.position).name();
            self.metrics.plugin(plugin, timed.point, timed.is_well, timed.took);
        }
        let asks = self.extenders.as_ref().is_some_and(|extenders| extenders.are_to_be_asked(&pod));
        if asks && matches!(decision, Decision::Place { .. }) {
            let name = |id: &NodeId| self.snapshot.node(*id).map(|state| state.node.name.clone());
            let about = About::Nodes(found.iter().filter_map(name).collect());
            return Step::Ask(Asking { waiting, profile, about });
        }
        if let Some(rooms) = self.extenders.as_ref().and_then(|extenders| extenders.question(&pod)) {
            return Step::Ask(Asking { waiting, profile, about: About::Rooms(rooms) });
        }
        let refused = match decision {
            Decision::Place { node, .. } => match self.reserve(&profile, &pod, node, &slots, now) {
                Ok(assumed) => return self.place(profile, waiting, assumed, node, now),
                Err((position, refusal)) => {
                    let failure = Failure::at_once(1, position, refusal);
                    return self.wait(profile, pod, failure, None, false, now);
                }
            },
            Decision::Wait { failure, preemption, is_cleared } => (failure, preemption, is_cleared),
        };
        let (failure, preemption, is_cleared) = refused;
        self.wait(profile, pod, failure, preemption, is_cleared, now)
    }

    /// Lets plugins claim what the pod will use, and asks whether it may be bound.
    fn reserve(
        &mut self,
        profile: &Profile,
        pod: &Arc<Pod>,
        node: NodeId,
        slots: &[crate::framework::Slot],
        now: Instant,
    ) -> Result<Arc<Pod>, (usize, Refusal)> {
        let Some(state) = self.snapshot.node(node) else {
            return Err((0, Refusal::unschedulable("the node is gone")));
        };
        let cycle = Cycle { snapshot: &self.snapshot, pod };
        let mut verdict = Ok(());
        for (position, plugin) in profile.at(Point::Reserve) {
            verdict =
                verdict.and_then(|()| plugin.reserve(cycle, &slots[position], state).map_err(|why| (position, why)));
        }
        let asked = verdict.and_then(|()| permit(profile, &self.waiting, pod, state.name()));
        let asked = asked.inspect_err(|_| profile.unreserve(pod, state.name()))?;
        if !asked.is_empty() {
            self.waiting.add(pod.clone(), state.node.name.clone(), asked, now);
        }
        Ok(Arc::new(Pod { node_name: state.node.name.clone(), ..Pod::clone(pod) }))
    }

    fn place(
        &mut self,
        profile: Arc<Profile>,
        waiting: Waiting,
        assumed: Arc<Pod>,
        node: NodeId,
        now: Instant,
    ) -> Step {
        let node = self.snapshot.node(node).map(|state| state.node.clone()).unwrap_or_default();
        self.snapshot.unnominate(&assumed.uid);
        self.snapshot.assume(assumed.clone());
        self.records.remove(&assumed.key);
        Step::Bind(Placing { pod: assumed, node, profile, waiting, decided: now })
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
    ) -> Waits {
        let refused_by = failure.plugins(&profile);
        let message = failure.message();
        self.records.put(&pod, &profile, &self.snapshot, failure);
        let mut waits = Waits {
            pod: pod.clone(),
            profile,
            message,
            nominated: Nominated::Unchanged,
            victims: Vec::new(),
            displaced: Vec::new(),
            refused_by,
        };
        match preemption {
            Some(preemption) => self.make_room(&mut waits, preemption),
            None => self.park(&pod.uid, waits.refused_by.clone(), now),
        }
        if is_cleared {
            self.snapshot.unnominate(&pod.uid);
            waits.nominated = Nominated::Cleared;
        }
        waits
    }

    /// Keeps the node for the pod; it comes back to the queue once its victims were asked to go.
    fn make_room(&mut self, waits: &mut Waits, preemption: Preemption) {
        let name = self.snapshot.node(preemption.node).map(|state| state.node.name.clone()).unwrap_or_default();
        let lower = |other: &&Arc<Pod>| other.priority < waits.pod.priority;
        waits.displaced = self.snapshot.nominated(&name).iter().filter(lower).cloned().collect();
        waits.displaced.iter().for_each(|other| self.snapshot.unnominate(&other.uid));
        self.snapshot.nominate(waits.pod.clone(), &name);
        self.making_room.insert(waits.pod.uid.clone());
        waits.victims = preemption.victims;
        waits.nominated = Nominated::Set(name);
    }

    /// The victims of a pod were asked to go: it waits for that now.
    pub fn room_is_made(&mut self, uid: &str, refused_by: Vec<&'static str>, now: Instant) {
        self.making_room.remove(uid);
        self.park(uid, refused_by, now);
    }

    fn park(&mut self, uid: &str, refused_by: Vec<&'static str>, now: Instant) {
        self.queue.park(uid, refused_by, now);
        self.count(uid, "ScheduleAttemptFailure");
    }

    /// Counts that a pod has come to where it is now.
    fn count(&self, uid: &str, event: &str) {
        if let Some((_, place)) = self.queue.get(uid) {
            self.metrics.came(place.label(), event);
        }
    }

    /// The victims of a pod could not be asked to go: it is tried again.
    pub fn room_is_not_made(&mut self, uid: &str, now: Instant) {
        self.making_room.remove(uid);
        self.snapshot.unnominate(uid);
        self.queue.retry(uid, now);
    }

    /// The decision about a pod was broken off: it is tried again after a pause.
    pub fn recover(&mut self, now: Instant) {
        let uid = std::mem::take(&mut self.current);
        self.snapshot.forget(&uid);
        self.queue.retry(&uid, now);
    }

    /// A binding is through: the queue has nothing to do with the pod any more.
    pub fn bound(&mut self, uid: &str) {
        self.queue.remove(uid);
    }

    /// A binding has failed: the place is free again, and the pod, if it still waits, is tried once more.
    pub fn not_bound(&mut self, placing: &Placing, now: Instant) {
        self.give_back(placing, now);
        self.queue.retry(&placing.pod.uid, now);
        self.count(&placing.pod.uid, "ScheduleAttemptFailure");
    }

    fn give_back(&mut self, placing: &Placing, now: Instant) {
        let pod = &placing.pod;
        self.waiting.remove(&pod.uid);
        placing.profile.unreserve(pod, &pod.node_name);
        if self.snapshot.is_assumed(&pod.uid) {
            self.snapshot.forget(&pod.uid);
            self.tell(&crate::framework::Event::PodGone(pod), now);
        }
    }

    /// A pod that had a node was not allowed to be bound: it waits for what its plugin says may help.
    pub fn not_permitted(&mut self, placing: &Placing, rejected: &Rejected, now: Instant) -> Option<Waits> {
        let (pod, profile) = (&placing.waiting.pod, &placing.profile);
        self.give_back(placing, now);
        // One that is gone, or whose scheduler ends, waits for nothing.
        let position = profile.position_of(rejected.plugin)?;
        self.queue.get(&pod.uid)?;
        let failure = Failure::at_once(1, position, Refusal::unschedulable(rejected.why.clone()));
        Some(self.waits(profile.clone(), pod.clone(), failure, None, false, now))
    }

    /// Whether what was decided still holds, where the node has changed since.
    pub fn still_fits(&mut self, placing: &Placing) -> bool {
        let Some(state) = self.snapshot.find(&placing.pod.node_name) else { return false };
        if Arc::ptr_eq(&state.node, &placing.node) {
            return true;
        }
        let waiting = Arc::new(Pod { node_name: Str::default(), ..Pod::clone(&placing.pod) });
        let node = state.id;
        crate::cycle::still_fits(&placing.profile, &mut self.snapshot, &waiting, node)
    }

    pub fn decider(&mut self, scheduler_name: &str) -> Option<(&mut Decider, &mut Snapshot, &Random)> {
        Some((self.deciders.get_mut(scheduler_name)?, &mut self.snapshot, &self.random))
    }

    /// In how many decisions each plugin was asked: scheduler, plugin, point.
    pub fn evaluations(&self) -> Vec<(Str, &'static str, Point, u64)> {
        let of = |(name, decider): (&Str, &Decider)| {
            let plugin = |position: usize| decider.profile.plugin(position).name();
            let all = decider.evaluations.all();
            all.map(|(position, point, count)| (name.clone(), plugin(position), point, count)).collect::<Vec<_>>()
        };
        self.deciders.iter().flat_map(of).collect()
    }

    pub fn is_ours(&self, pod: &Pod) -> bool {
        self.deciders.contains_key(&pod.scheduler_name)
    }
}

/// Which plugins want the pod to wait, and for how long. All are asked before any is heard.
fn permit(
    profile: &Profile,
    waiting: &Arc<WaitingPods>,
    pod: &Pod,
    node: &str,
) -> Result<Vec<(&'static str, Duration)>, (usize, Refusal)> {
    let mut asked = Vec::new();
    for (position, plugin) in profile.at(Point::Permit) {
        match plugin.permit(waiting, pod, node) {
            Permit::Allow => {}
            Permit::Wait(time) => asked.push((plugin.name(), time)),
            Permit::Refuse(refusal) => return Err((position, refusal)),
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests;
