//! What equal pods share: for each spec and node, what local plugins said of it, with the generation of the
//! node that they said it of. A node that has not changed since is not asked about again.

use std::sync::Arc;

use crate::framework::{Cycle, Point, Refusal};
use crate::model::Spec;
use crate::profile::{Filters, Profile};
use crate::snapshot::NodeState;

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
    /// Active filters, in their order: the position, and whether what it says is remembered.
    filters: Vec<(usize, bool)>,
    /// By node: the generation that the verdict is of; 0 for none.
    checked: Vec<u64>,
    /// By node: 0 where it fits, else one more than a place in `refusals`.
    verdicts: Vec<u32>,
    refusals: Vec<(usize, Refusal)>,
    /// For each local plugin that rates: its position, and by node the generation and the score.
    pub scores: Vec<(usize, Vec<(u64, i64)>)>,
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
            let shape = Shape::new(profile, &cycle.pod.spec, filters, &self.raters);
            self.shapes.push((shape, 0));
        } else if known.is_none() {
            self.shapes[at].0 = Shape::new(profile, &cycle.pod.spec, filters, &self.raters);
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
    fn new(profile: &Profile, spec: &Arc<Spec>, filters: &Filters, raters: &[usize]) -> Shape {
        let mut shape = Shape {
            spec: spec.clone(),
            filters: Vec::new(),
            checked: Vec::new(),
            verdicts: Vec::new(),
            refusals: Vec::new(),
            scores: raters.iter().map(|position| (*position, Vec::new())).collect(),
        };
        shape.set_active(profile, filters);
        shape
    }

    /// Which local filters are active follows from the spec; which others are may change.
    fn set_active(&mut self, profile: &Profile, filters: &Filters) {
        self.filters.clear();
        let local = |position: &usize| (*position, profile.plugin(*position).is_local());
        self.filters.extend(filters.active.iter().map(local));
    }

    fn grow(&mut self, slots: usize) {
        if self.checked.len() < slots {
            self.checked.resize(slots, 0);
            self.verdicts.resize(slots, 0);
            self.scores.iter_mut().for_each(|(_, scores)| scores.resize(slots, (0, 0)));
        }
    }

    /// The first refusal in the order of the plugins, whether it was remembered or found just now.
    pub fn check(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Result<(), (usize, Refusal)> {
        let remembered = self.local(cycle, filters, node);
        let until = remembered.map_or(usize::MAX, |at| self.refusals[at].0);
        // The order of the profile is the order of the filters, which need not be that of positions.
        for (position, is_local) in &self.filters {
            if *position == until {
                break;
            }
            if !is_local {
                let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
                verdict.map_err(|refusal| (*position, refusal))?;
            }
        }
        remembered.map_or(Ok(()), |at| Err(self.refusals[at].clone()))
    }

    /// The place of what local plugins have against the node.
    fn local(&mut self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Option<usize> {
        let (at, generation) = (node.id.at(), cycle.snapshot.generation_of(node.id));
        if self.checked[at] != generation {
            self.checked[at] = generation;
            self.verdicts[at] = match self.ask(cycle, filters, node) {
                Ok(()) => 0,
                Err(refusal) => self.place(refusal),
            };
        }
        (self.verdicts[at] as usize).checked_sub(1)
    }

    fn ask(&self, cycle: Cycle, filters: &Filters, node: &NodeState) -> Result<(), (usize, Refusal)> {
        for (position, _) in self.filters.iter().filter(|(_, is_local)| *is_local) {
            let verdict = filters.profile.plugin(*position).filter(cycle, &filters.slots[*position], node);
            verdict.map_err(|refusal| (*position, refusal))?;
        }
        Ok(())
    }

    fn place(&mut self, refusal: (usize, Refusal)) -> u32 {
        let known = self.refusals.iter().position(|known| *known == refusal);
        let at = known.unwrap_or_else(|| {
            self.refusals.push(refusal);
            self.refusals.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}
