//! Sets of NUMA nodes, and topology hints.

use std::collections::BTreeMap;

/// A set of NUMA nodes, by their numbers below 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mask(u64);

impl Mask {
    pub(crate) fn bits(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |bit| self.has(*bit))
    }

    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn has(self, node: u32) -> bool {
        1_u64.checked_shl(node).is_some_and(|bit| self.0 & bit != 0)
    }

    pub(crate) fn and(self, other: Mask) -> Mask {
        Mask(self.0 & other.0)
    }

    pub(crate) fn contains(self, other: Mask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Fewer nodes; with as many, the lower ones.
    pub(crate) fn is_narrower_than(self, other: Mask) -> bool {
        (self.count(), self) < (other.count(), other)
    }
}

impl FromIterator<u32> for Mask {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Mask {
        Mask(nodes.into_iter().filter_map(|node| 1_u64.checked_shl(node)).fold(0, |mask, bit| mask | bit))
    }
}

/// All sets of some of these nodes, small ones first.
pub(crate) fn masks(nodes: &[u32]) -> Vec<Mask> {
    (1..=nodes.len()).flat_map(|size| combinations(nodes, size)).map(|nodes| nodes.into_iter().collect()).collect()
}

/// All combinations of so many items of a list, in its order.
pub(crate) fn combinations<T: Copy>(of: &[T], size: usize) -> Vec<Vec<T>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for mut rest in combinations(&of[at + 1..], size - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// NUMA nodes that can provide a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// None without a preference.
    pub(crate) affinity: Option<Mask>,
    pub(crate) preferred: bool,
}

/// Hints by resource: None without a preference, an empty list if no node can provide it.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Hints for all masks that pass, those of the fewest nodes preferred. `holds` tests whether the nodes could ever have
/// the requested amount, `fits` whether they have it now.
pub(crate) fn hints(nodes: &[u32], holds: impl Fn(Mask) -> bool, fits: impl Fn(Mask) -> bool) -> Vec<Hint> {
    let masks = masks(nodes);
    let fewest = masks.iter().find(|mask| holds(**mask)).map_or(nodes.len() as u32, |mask| mask.count());
    let fitting = masks.into_iter().filter(|mask| fits(*mask));
    fitting.map(|mask| Hint { affinity: Some(mask), preferred: mask.count() == fewest }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_masks_come_first() {
        let of = |nodes: &[u32]| nodes.iter().copied().collect::<Mask>();
        let all = [&[0][..], &[1], &[3], &[0, 1], &[0, 3], &[1, 3], &[0, 1, 3]];
        assert_eq!(masks(&[0, 1, 3]), all.map(of));
        assert!(of(&[3]).is_narrower_than(of(&[0, 1])) && of(&[0]).is_narrower_than(of(&[3])));
        assert!(of(&[0, 1, 3]).contains(of(&[0, 3])) && !of(&[0]).contains(of(&[1])));
        assert_eq!(of(&[70]), Mask::default(), "there is no such node");
    }
}
