//! Selects the best feasible node by the weighted sum of all scores, and randomly among equal ones.

use client::Random;

use super::memo::Shape;
use super::times::{Evaluations, Times};
use crate::framework::{Cycle, Plugin, Point, PreScore, Profile, Slot};
use crate::snapshot::NodeId;

/// The destinations of timings and counts.
type Instruments<'a> = (&'a mut Times, &'a mut Evaluations);

pub(super) fn best(
    profile: &Profile,
    cycle: Cycle,
    slots: &[Slot],
    nodes: &[NodeId],
    shape: &mut Shape,
    random: &Random,
    instruments: &mut Instruments<'_>,
) -> NodeId {
    let totals = totals(profile, cycle, slots, nodes, shape, instruments);
    let highest = totals.iter().copied().max().unwrap_or(0);
    let equals = totals.iter().filter(|total| **total == highest).count();
    let chosen = random.below(equals as u64) as usize;
    let mut among = nodes.iter().zip(&totals).filter(|(_, total)| **total == highest);
    among.nth(chosen).map_or(nodes[0], |(node, _)| *node)
}

/// The total scores, in the order of `nodes`.
fn totals(
    profile: &Profile,
    cycle: Cycle,
    slots: &[Slot],
    nodes: &[NodeId],
    shape: &mut Shape,
    (times, evaluations): &mut Instruments<'_>,
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    let mut scores = Vec::with_capacity(nodes.len());
    for (position, plugin) in profile.at(Point::Score) {
        let prepare = || plugin.pre_score(cycle, &slots[position], nodes);
        let PreScore::Rate(slot) = times.plugin(position, Point::PreScore, |_| true, prepare) else { continue };
        [Point::PreScore, Point::Score].iter().for_each(|point| evaluations.count(position, *point));
        let weight = profile.weight(position);
        scores.clear();
        times.plugin(
            position,
            Point::Score,
            |()| true,
            || {
                match shape.scores.iter_mut().find(|(known, _)| *known == position) {
                    Some((_, remembered)) => rate_changed(plugin, cycle, &slot, nodes, remembered, &mut scores),
                    None => scores.extend(nodes.iter().map(|id| rate(plugin, cycle, &slot, *id))),
                }
                plugin.normalize(cycle, &slot, nodes, &mut scores);
            },
        );
        totals.iter_mut().zip(&scores).for_each(|(total, score)| *total += score * weight);
    }
    totals
}

fn rate(plugin: &dyn Plugin, cycle: Cycle, slot: &Slot, id: NodeId) -> i64 {
    cycle.snapshot.node(id).map_or(0, |node| plugin.score(cycle, slot, node))
}

/// Scores only nodes that have changed.
fn rate_changed(
    plugin: &dyn Plugin,
    cycle: Cycle,
    slot: &Slot,
    nodes: &[NodeId],
    remembered: &mut [(u64, i64)],
    scores: &mut Vec<i64>,
) {
    for id in nodes {
        let generation = cycle.snapshot.generation_of(*id);
        let known = &mut remembered[id.at()];
        if known.0 != generation {
            *known = (generation, rate(plugin, cycle, slot, *id));
        }
        scores.push(known.1);
    }
}
