//! The plugin interface: all extension points of a scheduling cycle, each with a default that does nothing. A plugin
//! is one file in `plugins/` and one line in `plugins/list.rs`.

mod failure;
mod fit;
mod permit;
mod profile;
mod queued_pod;

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
use client::Client;
use stdx::clock::Clock;

use crate::changes::Changes;
use crate::snapshot::{Kind, NodeId, NodeState, Objects, Snapshot};
use podmodel::{Node, Pod};

pub use failure::{Failure, summary};
pub use fit::fits;
pub use permit::{LONGEST_WAIT, PermitRejection, WaitingPod, WaitingPods};
#[cfg(test)]
pub(crate) use profile::MOST_PLUGINS;
pub use profile::{EnabledPlugin, Filters, Profile};
pub use queued_pod::QueuedPod;

/// The highest score of a node, after normalization.
pub const MAX_SCORE: i64 = 100;

/// A reason for a rejection, as it appears in events.
pub type Reason = Cow<'static, str>;

/// Extension points, named as in the configuration.
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

pub(crate) const POINTS: [Point; 12] = [
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

/// Reasons of a refusal. Usually there is one, which needs no allocation: thousands of nodes may be refused in one
/// cycle.
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

/// Why a node, or all nodes, cannot run the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Whether preemption cannot help (unresolvable).
    pub is_final: bool,
    /// Whether the plugin failed: then the whole attempt fails, and the pod is retried with backoff.
    pub is_error: bool,
    pub reasons: Reasons,
}

impl Rejection {
    /// Preempting other pods may help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Rejection {
        Rejection { is_final: false, is_error: false, reasons: Reasons::One(reason.into()) }
    }

    /// Preempting other pods cannot help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Rejection {
        Rejection { is_final: true, is_error: false, reasons: Reasons::One(reason.into()) }
    }

    /// The plugin cannot decide, whatever the node.
    pub fn error(reason: impl Into<Reason>) -> Rejection {
        Rejection { is_final: true, is_error: true, reasons: Reasons::One(reason.into()) }
    }
}

/// Ok if the pod fits.
pub type Verdict = Result<(), Rejection>;

/// The pod being scheduled, and the snapshot.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    pub snapshot: &'a Snapshot,
    pub pod: &'a Arc<Pod>,
}

/// State of a plugin that is kept between the extension points of a cycle.
pub trait State: Any + Send + Sync {
    /// A copy for a simulated change of the cluster.
    fn copy(&self) -> Box<dyn State>;
    /// For a plugin that reads its own state.
    fn as_any(&self) -> &dyn Any;
    /// For a plugin that changes its own state.
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

/// The slot for a plugin's state; empty if it has none.
#[derive(Default)]
pub struct Slot(Option<Box<dyn State>>);

impl Slot {
    pub(crate) fn new(state: impl State) -> Slot {
        Slot(Some(Box::new(state)))
    }

    pub(crate) fn get<T: State>(&self) -> Option<&T> {
        self.0.as_deref()?.as_any().downcast_ref()
    }

    pub(crate) fn get_mut<T: State>(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()?.as_any_mut().downcast_mut()
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        Slot(self.0.as_deref().map(State::copy))
    }
}

/// The result of PreFilter.
pub enum PreFilter {
    /// The plugin has nothing to check: its filter is not called for the pod.
    Skip,
    Check(Slot),
    /// Only these nodes are feasible.
    Only(BTreeSet<Str>, Slot),
    /// No node is feasible.
    Refuse(Rejection),
}

/// The result of PreScore.
pub enum PreScore {
    /// All nodes are equal for this plugin: its score is not called for the pod.
    Skip,
    Rate(Slot),
}

/// Whether an assumed pod may be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    Allow,
    /// Not before the plugin allows it, within this time.
    Wait(Duration),
    Refuse(Rejection),
}

/// The result of PostFilter.
#[derive(Debug, Clone, PartialEq)]
pub enum PostFilter {
    /// The plugin does not handle the pod.
    Skip,
    /// Preemption does not help; the text is appended to the message, and `clears` removes the nomination.
    Nothing { text: String, clears: bool },
    /// Preempt these pods, and nominate the node.
    Preempt { node: NodeId, victims: Vec<Arc<Pod>> },
}

/// A preemption candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub node: NodeId,
    /// Most important first; never empty.
    pub victims: Vec<Arc<Pod>>,
    /// The number of PodDisruptionBudget violations.
    pub violations: usize,
}

/// A cluster event. An unschedulable pod is queued again if the hint of a plugin that rejected it finds that the event
/// may help.
pub enum Event<'a> {
    /// A pod was assigned to a node.
    PodPlaced(&'a Pod),
    /// An assigned pod changed.
    PodChanged {
        old: &'a Pod,
        new: &'a Pod,
    },
    /// An assigned pod was deleted or has finished.
    PodDeleted(&'a Pod),
    /// The unscheduled pod itself changed.
    SelfChanged {
        old: &'a Pod,
        new: &'a Pod,
    },
    NodeAdded(&'a Node),
    NodeChanged {
        old: &'a Node,
        new: &'a Node,
    },
    NodeDeleted(&'a Node),
    NamespaceChanged,
    /// An object was added (no old), changed, or deleted (no new).
    Object {
        kind: Kind,
        old: Option<&'a Tree>,
        new: Option<&'a Tree>,
    },
}

impl Event<'_> {
    /// The name in metrics.
    pub fn label(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Event::PodPlaced(_) => "AssignedPodAdd",
            Event::PodChanged { .. } => "AssignedPodUpdate",
            Event::PodDeleted(_) => "AssignedPodDelete",
            Event::SelfChanged { .. } => "UnscheduledPodUpdate",
            Event::NodeAdded(_) => "NodeAdd",
            Event::NodeChanged { .. } => "NodeUpdate",
            Event::NodeDeleted(_) => "NodeDelete",
            Event::NamespaceChanged => "NamespaceUpdate",
            Event::Object { kind, old: None, .. } => return Cow::Owned(format!("{kind:?}Add")),
            Event::Object { kind, new: None, .. } => return Cow::Owned(format!("{kind:?}Delete")),
            Event::Object { kind, .. } => return Cow::Owned(format!("{kind:?}Update")),
        })
    }
}

/// The dependencies of plugins for API requests.
pub struct Handle {
    pub client: Client,
    pub clock: Arc<dyn Clock>,
    pub objects: Arc<dyn Objects>,
    /// Changes of volume claims and of resource claims, by key.
    pub changes: Arc<Changes>,
}

/// Why a plugin refuses or fails.
pub(crate) type PluginError = Box<dyn std::error::Error + Send + Sync>;

/// Work outside the scheduling cycle. An error ends the attempt; the pod is retried.
pub(crate) type PluginFuture<'a> = Pin<Box<dyn Future<Output = client::Result<()>> + Send + 'a>>;

/// Preemption results for a spec by node, valid for a generation of the node and a priority.
#[derive(Default)]
pub struct PreemptionCache(Vec<Option<CachedPreemption>>);

struct CachedPreemption {
    generation: u64,
    priority: i32,
    found: Arc<dyn Any + Send + Sync>,
}

impl PreemptionCache {
    pub(crate) fn get<T: Any + Send + Sync>(&self, node: NodeId, generation: u64, priority: i32) -> Option<Arc<T>> {
        let cached = self.0.get(node.at())?.as_ref()?;
        let is_current = (cached.generation, cached.priority) == (generation, priority);
        is_current.then(|| cached.found.clone().downcast().ok())?
    }

    pub(crate) fn put<T: Any + Send + Sync>(&mut self, node: NodeId, generation: u64, priority: i32, found: Arc<T>) {
        if self.0.len() <= node.at() {
            self.0.resize_with(node.at() + 1, || None);
        }
        self.0[node.at()] = Some(CachedPreemption { generation, priority, found });
    }
}

/// The input of PostFilter, with the whole profile for simulating all filters.
pub struct PostFilterInput<'a> {
    pub profile: &'a Profile,
    pub cycle: Cycle<'a>,
    /// None if the pod was rejected before any node was filtered.
    pub filters: Option<&'a Filters<'a>>,
    pub failure: &'a Failure,
    /// Results for an equal pod, by node; usable if all active filters are local.
    pub preemptions: Option<&'a RefCell<PreemptionCache>>,
    /// Random start of the candidate search.
    pub chance: u64,
}

/// A scheduler plugin. It implements the extension points that it returns from `points`.
pub trait Plugin: Send + Sync {
    /// Upstream's name.
    fn name(&self) -> &'static str;

    /// The extension points that it implements.
    fn points(&self) -> &'static [Point];

    /// Whether filter and score depend only on the pod's [`Spec`](podmodel::Spec) and the state of the one node.
    /// Then results are reused for equal pods until the node changes. The plugin's state must be derived from the
    /// spec too, or be empty.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether the pod may enter the active queue.
    fn pre_enqueue(&self, _snapshot: &Snapshot, _pod: &Pod) -> Verdict {
        Ok(())
    }

    /// The order of two queued pods.
    fn compare(&self, _one: &QueuedPod, _other: &QueuedPod) -> Ordering {
        Ordering::Equal
    }

    /// Registers what the snapshot must count for this pod. The only call that may change the snapshot; a no-op if
    /// everything is counted already.
    fn prepare(&self, _snapshot: &mut Snapshot, _pod: &Arc<Pod>) {}

    /// Prepares the filter, and may narrow the nodes down.
    fn pre_filter(&self, _cycle: Cycle) -> PreFilter {
        PreFilter::Check(Slot::default())
    }

    /// `node` may be a copy with pods added or removed; the slot was updated for each of them.
    fn filter(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> Verdict {
        Ok(())
    }

    /// Whether [`Plugin::rejects`] is implemented.
    fn has_fast_rejections(&self) -> bool {
        false
    }

    /// True only if [`Plugin::filter`] would reject the current node. Called for all nodes first, since it gives no
    /// reason: if no node remains, the filters are run for the reasons.
    fn rejects(&self, _cycle: Cycle, _slot: &Slot, _node: NodeId) -> bool {
        false
    }

    /// Simulates adding a pod to a node. `node` already contains it.
    fn add_pod(&self, _cycle: Cycle, _slot: &mut Slot, _added: &Arc<Pod>, _node: &NodeState) {}

    /// Simulates removing a pod from a node. `node` no longer contains it.
    fn remove_pod(&self, _cycle: Cycle, _slot: &mut Slot, _removed: &Arc<Pod>, _node: &NodeState) {}

    /// Runs if no node fits, and may preempt pods.
    fn post_filter(&self, _asked: &PostFilterInput) -> PostFilter {
        PostFilter::Skip
    }

    /// Whether its filter works on simulated removals. A plugin that depends on the real cluster, such as an
    /// extender, does not and is skipped.
    fn supports_preemption(&self) -> bool {
        true
    }

    /// Restricts the preemption candidates, or returns why there are none.
    fn filter_candidates(
        &self,
        _cycle: Cycle,
        candidates: Vec<Arc<Candidate>>,
    ) -> Result<Vec<Arc<Candidate>>, PluginError> {
        Ok(candidates)
    }

    /// `nodes` are the feasible nodes. `slot` is that of the filter.
    fn pre_score(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        PreScore::Rate(Slot::default())
    }

    /// The slot is that of [`Plugin::pre_score`].
    fn score(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> i64 {
        0
    }

    /// Normalizes the scores of all nodes to 0..=[`MAX_SCORE`]. `scores` and `nodes` have the same order.
    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], _scores: &mut [i64]) {}

    /// Reserves resources besides the node. `slot` is that of the filter.
    fn reserve(&self, _cycle: Cycle, _slot: &Slot, _node: &NodeState) -> Verdict {
        Ok(())
    }

    /// Releases them; also called if reserve was not.
    fn unreserve(&self, _pod: &Pod, _node: &str) {}

    /// `waiting` are assumed pods that wait for permission; they can be allowed or rejected here or later.
    fn permit(&self, _waiting: &Arc<WaitingPods>, _pod: &Pod, _node: &str) -> Permit {
        Permit::Allow
    }

    /// None if there is nothing to do.
    fn pre_bind<'a>(&'a self, _hands: &'a Handle, _pod: &'a Pod, _node: &'a str) -> Option<PluginFuture<'a>> {
        None
    }

    /// None if another plugin must bind the pod.
    fn bind<'a>(&'a self, _hands: &'a Handle, _pod: &'a Pod, _node: &'a str) -> Option<PluginFuture<'a>> {
        None
    }

    /// Runs after a pod was bound.
    fn post_bind(&self, _pod: &Pod, _node: &str) {}

    /// Undoes in the API what prevents a pod from being scheduled, after an attempt that found no node. None if there is
    /// nothing to do.
    fn clean_up<'a>(&'a self, _hands: &'a Handle, _pod: &'a Pod) -> Option<PluginFuture<'a>> {
        None
    }

    /// Whether an event may make this plugin accept a pod it has rejected. A plugin that always returns false relies
    /// on the periodic flush of the queue.
    fn may_help(&self, _pod: &Pod, _event: &Event) -> bool {
        false
    }
}

/// Normalizes scores to 0..=100 by the largest; `reverse` if lower is better.
pub(crate) fn normalize_by_largest(scores: &mut [i64], reverse: bool) {
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
