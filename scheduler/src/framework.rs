//! What a plugin is: all extension points of a scheduling cycle, each with a default that does nothing. A
//! plugin is one file in `plugins/` and one line of `plugins/list.rs`.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Str, Tree};
use client::{Client, Clock};

use crate::changes::Changes;
use crate::cycle::Failure;
use crate::model::{Node, Pod};
use crate::permit::WaitingPods;
use crate::profile::{Filters, Profile};
use crate::queue::Waiting;
use crate::snapshot::{Kind, NodeId, NodeState, Objects, Snapshot};

/// The largest score of a node, after normalization.
pub const MAX_SCORE: i64 = 100;

pub type Reason = Cow<'static, str>;

/// Where plugins are called, under the names that a configuration has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

pub const POINTS: [Point; 12] = [
    Point::PreEnqueue,
    Point::QueueSort,
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::PreScore,
    Point::Score,
    Point::Reserve,
    Point::Permit,
    Point::PreBind,
    Point::Bind,
    Point::PostBind,
];

/// Reasons of a refusal. There is mostly one, which needs no memory of its own: thousands of nodes may be
/// refused in one decision.
#[derive(Debug, Clone)]
pub enum Reasons {
    One(Reason),
    Many(Vec<Reason>),
}

impl Deref for Reasons {
    type Target = [Reason];

    fn deref(&self) -> &[Reason] {
        match self {
            Reasons::One(reason) => std::slice::from_ref(reason),
            Reasons::Many(reasons) => reasons,
        }
    }
}

impl PartialEq for Reasons {
    fn eq(&self, other: &Reasons) -> bool {
        **self == **other
    }
}

impl Eq for Reasons {}

impl From<Vec<Reason>> for Reasons {
    fn from(mut reasons: Vec<Reason>) -> Reasons {
        match (reasons.len(), reasons.pop()) {
            (1, Some(reason)) => Reasons::One(reason),
            (_, last) => {
                reasons.extend(last);
                Reasons::Many(reasons)
            }
        }
    }
}

/// Why a node, or all of them, will not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whether it stays so whoever goes from the node: preemption does not help.
    pub is_final: bool,
    pub reasons: Reasons,
}

impl Refusal {
    /// It may fit once other pods have gone.
    pub fn unschedulable(reason: impl Into<Reason>) -> Refusal {
        Refusal { is_final: false, reasons: Reasons::One(reason.into()) }
    }

    /// Nothing that happens to other pods helps.
    pub fn unresolvable(reason: impl Into<Reason>) -> Refusal {
        Refusal { is_final: true, reasons: Reasons::One(reason.into()) }
    }
}

/// Ok where the pod fits.
pub type Verdict = Result<(), Refusal>;

/// What is decided about, and in which world.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    pub snapshot: &'a Snapshot,
    pub pod: &'a Arc<Pod>,
}

/// What a plugin keeps from one extension point of a cycle to the next.
pub trait State: Any + Send + Sync {
    fn copy(&self) -> Box<dyn State>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> State for T {
    fn copy(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A slot of a plugin for its state; empty where it keeps none.
#[derive(Default)]
pub struct Slot(Option<Box<dyn State>>);

impl Slot {
    pub fn new(state: impl State) -> Slot {
        Slot(Some(Box::new(state)))
    }

    pub fn get<T: State>(&self) -> Option<&T> {
        self.0.as_deref()?.as_any().downcast_ref()
    }

    pub fn get_mut<T: State>(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()?.as_any_mut().downcast_mut()
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        Slot(self.0.as_deref().map(State::copy))
    }
}

pub enum PreFilter {
    /// There is nothing that this plugin could object to: its filter is not called for the pod.
    Skip,
    Check(Slot),
    /// Only these nodes can do.
    Only(BTreeSet<Str>, Slot),
    /// No node will do.
    Refuse(Refusal),
}

pub enum PreScore {
    /// All nodes are the same to this plugin: its score is not called for the pod.
    Skip,
    Rate(Slot),
}

/// Whether a pod that has a node may be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    Allow,
    /// Not before the plugin has allowed it, which it does in this time.
    Wait(Duration),
    Refuse(Refusal),
}

/// What came of looking for a way to make room.
#[derive(Debug, Clone, PartialEq)]
pub enum PostFilter {
    /// Not of this plugin's concern.
    Skip,
    /// Nothing helps; what is said of that behind the summary, and whether the node that is kept for the pod
    /// is of no use any more.
    Nothing { text: String, clears: bool },
    /// These pods go, and the node is kept for the pod until they have.
    Preempt { node: NodeId, victims: Vec<Arc<Pod>> },
}

/// A way to make room on a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub node: NodeId,
    /// The most important one first; never empty.
    pub victims: Vec<Arc<Pod>>,
    /// How many budgets would not allow it.
    pub violations: usize,
}

/// What happened in the cluster. A pod that waits comes back where a plugin that refused it hopes for better
/// by that.
pub enum Event<'a> {
    /// A pod got a node, by whomever.
    PodPlaced(&'a Pod),
    /// A pod with a node changed.
    PodChanged {
        old: &'a Pod,
        new: &'a Pod,
    },
    /// A pod with a node is gone, or over.
    PodGone(&'a Pod),
    /// The waiting pod itself changed.
    SelfChanged {
        old: &'a Pod,
        new: &'a Pod,
    },
    NodeAdded(&'a Node),
    NodeChanged {
        old: &'a Node,
        new: &'a Node,
    },
    NodeGone(&'a Node),
    NamespaceChanged,
    /// An object came (no old), changed, or went (no new).
    Object {
        kind: Kind,
        old: Option<&'a Tree>,
        new: Option<&'a Tree>,
    },
}

impl Event<'_> {
    /// What metrics call it.
    pub fn label(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Event::PodPlaced(_) => "AssignedPodAdd",
            Event::PodChanged { .. } => "AssignedPodUpdate",
            Event::PodGone(_) => "AssignedPodDelete",
            Event::SelfChanged { .. } => "UnscheduledPodUpdate",
            Event::NodeAdded(_) => "NodeAdd",
            Event::NodeChanged { .. } => "NodeUpdate",
            Event::NodeGone(_) => "NodeDelete",
            Event::NamespaceChanged => "NamespaceUpdate",
            Event::Object { kind, old: None, .. } => return Cow::Owned(format!("{kind:?}Add")),
            Event::Object { kind, new: None, .. } => return Cow::Owned(format!("{kind:?}Delete")),
            Event::Object { kind, .. } => return Cow::Owned(format!("{kind:?}Update")),
        })
    }
}

/// What a plugin may use where it writes.
pub struct Hands {
    pub client: Client,
    pub clock: Arc<dyn Clock>,
    pub objects: Arc<dyn Objects>,
    /// Changes of claims, by their keys.
    pub changes: Arc<Changes>,
}

/// What is tried with a pod outside of the decision. An error ends the attempt; the pod is tried again.
pub type Working<'a> = Pin<Box<dyn Future<Output = client::Result<()>> + Send + 'a>>;

/// What a plugin found out about making room for a spec, by node: with which generation of the node and for
/// which priority.
#[derive(Default)]
pub struct Ways(Vec<Option<Way>>);

struct Way {
    generation: u64,
    priority: i32,
    found: Arc<dyn Any + Send + Sync>,
}

impl Ways {
    pub fn get<T: Any + Send + Sync>(&self, node: NodeId, generation: u64, priority: i32) -> Option<Arc<T>> {
        let way = self.0.get(node.at())?.as_ref()?;
        let is_current = (way.generation, way.priority) == (generation, priority);
        is_current.then(|| way.found.clone().downcast().ok())?
    }

    pub fn put<T: Any + Send + Sync>(&mut self, node: NodeId, generation: u64, priority: i32, found: Arc<T>) {
        if self.0.len() <= node.at() {
            self.0.resize_with(node.at() + 1, || None);
        }
        self.0[node.at()] = Some(Way { generation, priority, found });
    }
}

/// What preemption is given: the whole profile, to ask all filters what would be if.
pub struct PostFiltering<'a> {
    pub profile: &'a Profile,
    pub cycle: Cycle<'a>,
    /// None where the pod was refused before any node was looked at.
    pub filters: Option<&'a Filters<'a>>,
    pub failure: &'a Failure,
    /// What was found out for an equal pod, by node. It may be used where all active filters are local.
    pub ways: Option<&'a RefCell<Ways>>,
    /// Where the search for candidates starts.
    pub chance: u64,
}

pub trait Plugin: Send + Sync {
    /// Upstream's name.
    fn name(&self) -> &'static str;

    /// Where it does anything.
    fn points(&self) -> &'static [Point];

    /// Whether filter and score depend on the pod's [`Spec`](crate::model::Spec) and the one node's state
    /// alone. Then what was found once holds for equal pods until the node changes. Its state must follow
    /// from the spec too, or be empty.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether a pod may be tried at all.
    fn pre_enqueue(&self, _pod: &Pod) -> Verdict {
        Ok(())
    }

    /// Which of two waiting pods is tried first.
    fn compare(&self, _one: &Waiting, _other: &Waiting) -> Ordering {
        Ordering::Equal
    }

    /// Tells the snapshot what this pod needs to be counted from now on. The only call that may change it;
    /// where all is counted already it does nothing.
    fn prepare(&self, _snapshot: &mut Snapshot, _pod: &Arc<Pod>) {}

    fn pre_filter(&self, _cycle: Cycle) -> PreFilter {
        PreFilter::Check(Slot::default())
    }

    /// `node` may be a copy with pods added or taken away; the slot has then heard of each of them.
    fn filter(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> Verdict {
        Ok(())
    }

    /// Whether [`Plugin::refuses`] knows anything.
    fn has_fast_refusals(&self) -> bool {
        false
    }

    /// True only where [`Plugin::filter`] would refuse the node as it is. It is asked of all nodes first, since it
    /// says nothing of why: where no node is left, the filters say that.
    fn refuses(&self, _cycle: Cycle, _slot: &Slot, _node: NodeId) -> bool {
        false
    }

    /// A pod is added to a node, in the mind only. `node` has it already.
    fn add_pod(&self, _cycle: Cycle, _slot: &mut Slot, _added: &Arc<Pod>, _node: &NodeState) {}

    /// A pod is taken from a node, in the mind only. `node` has it no more.
    fn remove_pod(&self, _cycle: Cycle, _slot: &mut Slot, _removed: &Arc<Pod>, _node: &NodeState) {}

    fn post_filter(&self, _asked: &PostFiltering) -> PostFilter {
        PostFilter::Skip
    }

    /// Whether its filter can say what would be if some pods were gone. One that has heard others speak of the
    /// cluster as it is cannot, and is not asked.
    fn foresees(&self) -> bool {
        true
    }

    /// Which ways to make room are to be chosen from, or why none is.
    fn screen(&self, _cycle: Cycle, candidates: Vec<Arc<Candidate>>) -> Result<Vec<Arc<Candidate>>, String> {
        Ok(candidates)
    }

    /// `nodes` are those that the pod fits. `slot` is what the plugin's filter was given.
    fn pre_score(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        PreScore::Rate(Slot::default())
    }

    /// The slot is that of [`Plugin::pre_score`].
    fn score(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> i64 {
        0
    }

    /// Brings the scores of all nodes to 0..=[`MAX_SCORE`]. `scores` go with `nodes`.
    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], _scores: &mut [i64]) {}

    /// Claims what the pod will use besides the node. `slot` is that of the filter.
    fn reserve(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> Verdict {
        Ok(())
    }

    /// Gives it back; also called for one whose reserve was not.
    fn unreserve(&self, _pod: &Pod, _node: &str) {}

    /// `waiting` are those that have got a node before and wait for leave: they can be allowed or rejected here,
    /// as later by whoever keeps them.
    fn permit(&self, _waiting: &Arc<WaitingPods>, _pod: &Pod, _node: &str) -> Permit {
        Permit::Allow
    }

    /// None where there is nothing to do.
    fn pre_bind<'a>(&'a self, _hands: &'a Hands, _pod: &'a Pod, _node: &'a str) -> Option<Working<'a>> {
        None
    }

    /// None where another is to bind.
    fn bind<'a>(&'a self, _hands: &'a Hands, _pod: &'a Pod, _node: &'a str) -> Option<Working<'a>> {
        None
    }

    fn post_bind(&self, _pod: &Pod, _node: &str) {}

    /// Whether an event may let this plugin accept a pod that it has refused. A plugin that never says yes
    /// leaves its pods to the flush of the queue.
    fn may_help(&self, _pod: &Pod, _event: &Event) -> bool {
        false
    }
}

/// Brings scores to 0..=100 by the largest of them; `reverse` where less is better.
pub fn normalize_by_largest(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if largest == 0 { 0 } else { *score * MAX_SCORE / largest };
        *score = match (largest, reverse) {
            (0, true) => MAX_SCORE,
            (_, true) => MAX_SCORE - scaled,
            (_, false) => scaled,
        };
    }
}
