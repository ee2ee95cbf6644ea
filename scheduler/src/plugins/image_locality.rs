//! Prefers nodes that have the pod's images, by size.

use api::Str;

use crate::framework::{Cycle, MAX_SCORE, Plugin, Point, PreScore, Slot};
use crate::snapshot::{NodeId, NodeState};
use podmodel::Spec;

const MIB: i64 = 1024 * 1024;
/// Smaller images do not count.
const LEAST: i64 = 23 * MIB;
/// The maximum counted size per container.
const MOST: i64 = 1000 * MIB;

#[derive(Default)]
pub(super) struct ImageLocality;

/// The images of a pod, each with the fraction of nodes that have it.
#[derive(Clone)]
struct Images(Vec<(Str, f64)>);

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        let (snapshot, names) = (cycle.snapshot, names(&cycle.pod.spec));
        let part = |name: &Str| snapshot.images.nodes_with(name) as f64 / snapshot.node_count().max(1) as f64;
        let images: Vec<(Str, f64)> = names.into_iter().map(|name| (name.clone(), part(&name))).collect();
        match images.iter().all(|(_, part)| *part == 0.0) {
            true => PreScore::Skip,
            false => PreScore::Rate(Slot::new(Images(images))),
        }
    }

    fn score(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        let Some(Images(images)) = slot.get::<Images>() else { return 0 };
        let scaled = |(name, part): &(Str, f64)| (node.node.image_size(name).unwrap_or(0) as f64 * part) as i64;
        let sum: i64 = images.iter().map(scaled).sum();
        let most = MOST * images.len() as i64;
        MAX_SCORE * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }
}

/// A name without a tag gets `:latest`.
fn names(spec: &Spec) -> Vec<Str> {
    let with_tag = |image: &Str| match image.rfind(':') > image.rfind('/') {
        true => image.clone(),
        false => Str::from(format!("{image}:latest")),
    };
    spec.images.iter().map(with_tag).collect()
}
