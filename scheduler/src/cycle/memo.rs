//! What equal pods share: for each spec and node, what local plugins said of it, with the generation of the
//! node that they said it of. A node that has not changed since is not asked about again.

use std::cell::RefCell;
use std::sync::Arc;

use crate::framework::{Cycle, Point, Refusal, Ways};
use crate::model::Spec;
use crate::profile::{Filters, Profile};
use crate::snapshot::{NodeId, NodeState};

/// As many specs are remembered; the one that was not used for longest goes.
const MOST_SHAPES: usize = 64;

pub struct Memo {
    shapes: Vec<(Shape, u64)>,
    turn: u64,
    /// Positions of local plugins that rate.
    raters: Vec<usize>,
}

/// What is remembered of one spec.
pub struct Shape {
    spec: Arc<Spec>,
    /// Active filters whose words are remembered, in their order.
    local: Vec<usize>,
    /// Active filters that are asked each time: where they stand in the order of all, and their positions.
    others: Vec<(usize, usize)>,
    /// By node: the generation that the verdict is of; 0 for none.
    checked: Vec<u64>,
    /// By node: 0 where it fits, else one more than a place in `refusals`.
    verdicts: Vec<u32>,
    pub refusals: Vec<Remembered>,
    /// For each local plugin that rates: its position, and by node the generation and the score.
    pub scores: Vec<(usize, Vec<(u64, i64)>)>,
    /// How room could be made.
    pub ways: RefCell<Ways>,
}

/// A refusal of a local plugin.
pub struct Remembered {
    /// Where the plugin stands in the order of all active filters.
    order: usize,
    pub position: usize,
    pub refusal: Refusal,
}

/// Why a node will not do.
pub enum Refused {
    /// A place in the refusals of the shape.
    Before(usize),
    Now(usize, Refusal),
}

impl Memo {
    pub fn new(profile: &Profile) -> Memo {
        let raters = profile.at(Point::Score).filter(|(_, plugin)| plugin.is_local()).map(|(at, _)| at).collect();
        Memo { shapes: Vec::new(), turn: 0, raters }
    }

    /// The shape of a pod, made up to date with the number of nodes.
    pub fn shape(&mut self, profile: &Profile, cycle: Cycle, filters: &Filters) -> &mut Shape {
        self.turn += 1;
        let known = self.shapes.iter().position(|(shape, _)| Arc::ptr_eq(&shape.spec, &cycle.pod.spec));
        let at = known.unwrap_or_else(|| self.make_room());
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

    /// Where the next one goes.
    fn make_room(&self) -> usize {
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
            refusals: Vec::new(),
            scores: raters.iter().map(|position| (*position, Vec::new())).collect(),
            ways: RefCell::default(),
        }
    }

    /// Which local filters are active follows from the spec; which others are may change.
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

    /// Whether the node fits by remembered verdicts alone. Most nodes do, and their state need not be touched.
    pub fn is_known_to_fit(&self, id: NodeId, generation: u64) -> bool {
        let at = id.at();
        self.others.is_empty() && self.checked[at] == generation && self.verdicts[at] == 0
    }

    /// The first refusal in the order of the plugins, whether it was remembered or found just now.
    pub fn check(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Result<(), Refused> {
        let remembered = self.ask_local(cycle, filters, node);
        let until = remembered.map_or(usize::MAX, |at| self.refusals[at].order);
        for (_, position) in self.others.iter().take_while(|(order, _)| *order < until) {
            let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
            verdict.map_err(|refusal| Refused::Now(*position, refusal))?;
        }
        remembered.map_or(Ok(()), |at| Err(Refused::Before(at)))
    }

    /// The place of what local plugins have against the node.
    fn ask_local(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Option<usize> {
        let (at, generation) = (node.id.at(), cycle.snapshot.generation_of(node.id));
        if self.checked[at] != generation {
            self.checked[at] = generation;
            let asked = self.local.iter().find_map(|position| {
                let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
                verdict.err().map(|refusal| (*position, refusal))
            });
            self.verdicts[at] = asked.map_or(0, |(position, refusal)| self.remember(filters, position, refusal));
        }
        (self.verdicts[at] as usize).checked_sub(1)
    }

    fn remember(&mut self, filters: &Filters, position: usize, refusal: Refusal) -> u32 {
        let same = |known: &Remembered| known.position == position && known.refusal == refusal;
        let at = self.refusals.iter().position(same).unwrap_or_else(|| {
            let order = filters.active.iter().position(|active| *active == position).unwrap_or(0);
            self.refusals.push(Remembered { order, position, refusal });
            self.refusals.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}
