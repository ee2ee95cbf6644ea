//! Cache of filter and score results for equal pods: for each spec and node the results of local plugins, with the
//! generation of the node. An unchanged node is not evaluated again.

use std::cell::RefCell;
use std::sync::Arc;

use crate::framework::{Cycle, Filters, Point, PreemptionCache, Profile, Rejection};
use crate::snapshot::{NodeId, NodeState};
use podmodel::Spec;

/// The maximum number of specs; the least recently used one is evicted.
const MOST_SHAPES: usize = 64;

pub(crate) struct Memo {
    shapes: Vec<(Shape, u64)>,
    turn: u64,
    /// Positions of local score plugins.
    raters: Vec<usize>,
}

/// The cached results for one spec.
pub(super) struct Shape {
    spec: Arc<Spec>,
    /// Active filters with cached results, in order.
    local: Vec<usize>,
    /// Active filters that are always called: their index among all active filters, and their position.
    others: Vec<(usize, usize)>,
    /// By node: the generation of the cached result; 0 for none.
    checked: Vec<u64>,
    /// By node: 0 if it fits, otherwise an index of `rejections` plus one.
    verdicts: Vec<u32>,
    pub rejections: Vec<CachedRejection>,
    /// For each local score plugin: its position, and by node the generation and score.
    pub scores: Vec<(usize, Vec<(u64, i64)>)>,
    /// Preemption results.
    pub preemptions: RefCell<PreemptionCache>,
}

/// A cached rejection of a local plugin.
pub(crate) struct CachedRejection {
    /// The plugin's index among all active filters.
    order: usize,
    pub position: usize,
    pub rejection: Rejection,
}

/// Why a node is rejected.
pub(super) enum RejectionCause {
    /// An index of the shape's refusals.
    Before(usize),
    Now(usize, Rejection),
}

impl Memo {
    pub(super) fn new(profile: &Profile) -> Memo {
        let raters = profile.at(Point::Score).filter(|(_, plugin)| plugin.is_local()).map(|(at, _)| at).collect();
        Memo { shapes: Vec::new(), turn: 0, raters }
    }

    /// The entry of a pod's spec, sized for the current nodes.
    pub(super) fn shape(&mut self, profile: &Profile, cycle: Cycle, filters: &Filters) -> &mut Shape {
        self.turn += 1;
        let known = self.shapes.iter().position(|(shape, _)| Arc::ptr_eq(&shape.spec, &cycle.pod.spec));
        let at = known.unwrap_or_else(|| self.free_slot());
        if at == self.shapes.len() {
            self.shapes.push((Shape::new(&cycle.pod.spec, &self.raters), 0));
        } else if known.is_none() {
            self.shapes[at].0 = Shape::new(&cycle.pod.spec, &self.raters);
        }
        let (shape, used) = &mut self.shapes[at];
        *used = self.turn;
        shape.set_active(profile, filters);
        shape.grow(cycle.snapshot.slot_count());
        shape
    }

    /// The index for a new entry.
    fn free_slot(&self) -> usize {
        if self.shapes.len() < MOST_SHAPES {
            return self.shapes.len();
        }
        let oldest = self.shapes.iter().enumerate().min_by_key(|(_, (_, used))| *used);
        oldest.map_or(0, |(at, _)| at)
    }
}

impl Shape {
    fn new(spec: &Arc<Spec>, raters: &[usize]) -> Shape {
        Shape {
            spec: spec.clone(),
            local: Vec::new(),
            others: Vec::new(),
            checked: Vec::new(),
            verdicts: Vec::new(),
            rejections: Vec::new(),
            scores: raters.iter().map(|position| (*position, Vec::new())).collect(),
            preemptions: RefCell::default(),
        }
    }

    /// The active local filters depend on the spec only; other active filters may change.
    fn set_active(&mut self, profile: &Profile, filters: &Filters) {
        self.local.clear();
        self.others.clear();
        for (order, position) in filters.active.iter().enumerate() {
            match profile.plugin(*position).is_local() {
                true => self.local.push(*position),
                false => self.others.push((order, *position)),
            }
        }
    }

    fn grow(&mut self, slots: usize) {
        if self.checked.len() < slots {
            self.checked.resize(slots, 0);
            self.verdicts.resize(slots, 0);
            self.scores.iter_mut().for_each(|(_, scores)| scores.resize(slots, (0, 0)));
        }
    }

    /// Whether the node fits according to cached results alone. Most nodes do, and their state need not be read.
    pub(crate) fn is_known_to_fit(&self, id: NodeId, generation: u64) -> bool {
        let at = id.at();
        self.others.is_empty() && self.checked[at] == generation && self.verdicts[at] == 0
    }

    /// The first rejection in plugin order, cached or new.
    pub(super) fn check(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Result<(), RejectionCause> {
        let remembered = self.check_local(cycle, filters, node);
        let until = remembered.map_or(usize::MAX, |at| self.rejections[at].order);
        for (_, position) in self.others.iter().take_while(|(order, _)| *order < until) {
            let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
            verdict.map_err(|rejection| RejectionCause::Now(*position, rejection))?;
        }
        remembered.map_or(Ok(()), |at| Err(RejectionCause::Before(at)))
    }

    /// The index of the local plugins' rejection of the node.
    fn check_local(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Option<usize> {
        let (at, generation) = (node.id.at(), cycle.snapshot.generation_of(node.id));
        if self.checked[at] != generation {
            self.checked[at] = generation;
            let asked = self.local.iter().find_map(|position| {
                let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
                verdict.err().map(|rejection| (*position, rejection))
            });
            self.verdicts[at] = asked.map_or(0, |(position, rejection)| self.remember(filters, position, rejection));
        }
        (self.verdicts[at] as usize).checked_sub(1)
    }

    fn remember(&mut self, filters: &Filters, position: usize, rejection: Rejection) -> u32 {
        let same = |known: &CachedRejection| known.position == position && known.rejection == rejection;
        let at = self.rejections.iter().position(same).unwrap_or_else(|| {
            let order = filters.active.iter().position(|active| *active == position).unwrap_or(0);
            self.rejections.push(CachedRejection { order, position, rejection });
            self.rejections.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}
