//! Merges the hints of all resource managers into one, and decides whether it is good enough.

use super::machine::Machine;
use super::numa::{Hint, Hints, Mask};
use crate::config::topology::{Options, Policy};

pub(crate) struct Merger<'a> {
    pub(crate) policy: Policy,
    pub(crate) options: Options,
    pub(crate) machine: &'a Machine,
}

impl Merger<'_> {
    /// The best hint, and whether it is admitted.
    pub(crate) fn merge(&self, providers: &[Hints]) -> (Hint, bool) {
        let mut lists: Vec<Vec<Hint>> = providers.iter().flat_map(lists).collect();
        if self.policy == Policy::SingleNumaNode {
            let is_single = |hint: &Hint| hint.preferred && hint.affinity.is_none_or(|mask| mask.count() == 1);
            lists.iter_mut().for_each(|list| list.retain(is_single));
        }
        let mut best = self.best(&lists);
        if self.policy == Policy::SingleNumaNode && best.affinity == Some(self.all_nodes()) {
            best.affinity = None;
        }
        let is_good = match self.policy {
            Policy::None | Policy::BestEffort => true,
            Policy::Restricted | Policy::SingleNumaNode => best.preferred,
        };
        (best, is_good)
    }

    fn all_nodes(&self) -> Mask {
        self.machine.nodes.keys().copied().collect()
    }

    /// The best combination of one hint of each list.
    fn best(&self, lists: &[Vec<Hint>]) -> Hint {
        let everywhere = self.all_nodes();
        let needed = lists.iter().filter_map(|list| fewest(list)).max().unwrap_or(0);
        let mut merged = vec![(everywhere, true)];
        for list in lists {
            merged = merged
                .iter()
                .flat_map(|(mask, preferred)| {
                    list.iter()
                        .map(|hint| (mask.and(hint.affinity.unwrap_or(everywhere)), *preferred && hint.preferred))
                })
                .collect();
            // Combinations with the same result are equal from there on; the first one counts.
            let mut seen = std::collections::BTreeSet::new();
            merged.retain(|way| way.0.count() > 0 && seen.insert(*way));
        }
        let mut best: Option<(Mask, bool)> = None;
        for way in merged {
            if best.is_none_or(|best| self.is_better(way, best, needed)) {
                best = Some(way);
            }
        }
        let (mask, preferred) = best.unwrap_or((everywhere, false));
        Hint { affinity: Some(mask), preferred }
    }

    fn is_better(&self, new: (Mask, bool), old: (Mask, bool), needed: u32) -> bool {
        match (new.1, old.1) {
            (true, false) => return true,
            (false, true) => return false,
            (true, true) => return self.fits_better(new.0, old.0),
            (false, false) => {}
        }
        // None is preferred: as many nodes as the most demanding needs, or as close to that from below as can be.
        let (new_count, old_count) = (new.0.count(), old.0.count());
        match (old_count.cmp(&needed), new_count.cmp(&needed)) {
            (std::cmp::Ordering::Greater, _) => self.fits_better(new.0, old.0),
            (std::cmp::Ordering::Equal, std::cmp::Ordering::Equal) => self.fits_better(new.0, old.0),
            (std::cmp::Ordering::Equal, _) | (_, std::cmp::Ordering::Greater) => false,
            (_, std::cmp::Ordering::Equal) => true,
            _ if new_count != old_count => new_count > old_count,
            _ => self.fits_better(new.0, old.0),
        }
    }

    fn fits_better(&self, new: Mask, old: Mask) -> bool {
        let by_distance = self.options.prefer_closest && self.policy != Policy::SingleNumaNode;
        if by_distance && new.count() == old.count() {
            let (near, far) = (self.distance(new), self.distance(old));
            // Both are divided by the same number of pairs.
            return near < far || near == far && new < old;
        }
        new.is_narrower_than(old)
    }

    fn distance(&self, mask: Mask) -> u64 {
        let pairs = mask.bits().flat_map(|from| mask.bits().map(move |to| (from, to)));
        pairs.filter_map(|(from, to)| self.machine.nodes.get(&from)?.distances.get(&to)).sum()
    }
}

/// A provider's hints as lists to choose from.
fn lists(hints: &Hints) -> Vec<Vec<Hint>> {
    let anywhere = vec![Hint { affinity: None, preferred: true }];
    if hints.is_empty() {
        return vec![anywhere];
    }
    let list = |hints: &Option<Vec<Hint>>| match hints {
        None => anywhere.clone(),
        Some(none) if none.is_empty() => vec![Hint::default()],
        Some(hints) => hints.clone(),
    };
    hints.values().map(list).collect()
}

fn fewest(list: &[Hint]) -> Option<u32> {
    list.iter().filter_map(|hint| hint.affinity).map(Mask::count).min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::machine::made_up;
    use super::*;

    fn hint(nodes: &[u32], preferred: bool) -> Hint {
        Hint { affinity: Some(nodes.iter().copied().collect()), preferred }
    }

    fn provider(lists: &[(&str, Option<Vec<Hint>>)]) -> Hints {
        lists.iter().map(|(name, hints)| (name.to_string(), hints.clone())).collect()
    }

    fn check(policy: Policy, providers: &[Hints], want: (&[u32], bool, bool)) {
        let machine = made_up::machine(2, 1, 4, 1, 4);
        let merger = Merger { policy, options: Options::default(), machine: &machine };
        let (best, is_good) = merger.merge(providers);
        let nodes: Vec<u32> = best.affinity.map(|mask| mask.bits().collect()).unwrap_or_default();
        assert_eq!((nodes.as_slice(), best.preferred, is_good), want, "{policy:?} {providers:?}");
    }

    #[test]
    fn merges_hints_like_upstream() {
        let either = || Some(vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)]);
        let second = || Some(vec![hint(&[1], true), hint(&[0, 1], false)]);
        let both = || Some(vec![hint(&[0, 1], true)]);
        let (none, nothing) = (Hints::new(), || provider(&[("gpu", Some(Vec::new()))]));
        let restricted = [
            (vec![], (&[0, 1][..], true, true)),
            (vec![none.clone()], (&[0, 1], true, true)),
            (vec![provider(&[("cpu", either())])], (&[0], true, true)),
            (vec![provider(&[("cpu", either())]), provider(&[("gpu", second())])], (&[1], true, true)),
            (vec![provider(&[("cpu", both())]), provider(&[("gpu", second())])], (&[1], true, true)),
            (vec![provider(&[("cpu", either()), ("gpu", None)])], (&[0], true, true)),
            (vec![nothing()], (&[0, 1], false, false)),
            (vec![provider(&[("cpu", either())]), nothing()], (&[0], false, false)),
            (
                vec![
                    provider(&[("a", Some(vec![hint(&[0], true)]))]),
                    provider(&[("b", Some(vec![hint(&[1], true)]))]),
                ],
                (&[0, 1], false, false),
            ),
        ];
        for (providers, want) in restricted {
            check(Policy::Restricted, &providers, want);
            check(Policy::BestEffort, &providers, (want.0, want.1, true));
        }
        let single = [
            (vec![none], (&[][..], true, true)),
            (vec![provider(&[("cpu", either())]), provider(&[("gpu", second())])], (&[1], true, true)),
            (vec![provider(&[("cpu", both())])], (&[], false, false)),
            (vec![nothing()], (&[], false, false)),
        ];
        for (providers, want) in single {
            check(Policy::SingleNumaNode, &providers, want);
        }
    }

    #[test]
    fn prefers_the_smallest_sufficient_mask() {
        let machine = made_up::machine(2, 2, 2, 1, 2);
        let merger = Merger { policy: Policy::BestEffort, options: Options::default(), machine: &machine };
        let lists = provider(&[
            ("a", Some(vec![hint(&[0], false), hint(&[0, 1], false), hint(&[0, 1, 2], false)])),
            ("b", Some(vec![hint(&[0, 1], false), hint(&[0, 1, 2, 3], false)])),
        ]);
        assert_eq!(merger.merge(&[lists]).0, hint(&[0, 1], false));
    }

    #[test]
    fn prefers_close_nodes_if_configured() {
        let machine = made_up::machine(2, 2, 2, 1, 2);
        let hints = provider(&[("cpu", Some(vec![hint(&[0, 2], true), hint(&[2, 3], true)]))]);
        let merge = |prefer_closest: bool| {
            let options = Options { prefer_closest, ..Options::default() };
            Merger { policy: Policy::BestEffort, options, machine: &machine }.merge(std::slice::from_ref(&hints)).0
        };
        assert_eq!((merge(false), merge(true)), (hint(&[0, 2], true), hint(&[2, 3], true)));
    }

    #[test]
    fn reads_options_and_rejects_by_name() {
        let read = |name: &str, value: &str| Options::read(&BTreeMap::from([(name.to_string(), value.to_string())]));
        assert!(read("prefer-closest-numa-nodes", "true").is_ok_and(|options| options.prefer_closest));
        assert!(read("max-allowable-numa-nodes", "12").is_ok_and(|options| options.most_nodes == 12));
        for (name, value) in [("x", "true"), ("prefer-closest-numa-nodes", "yes"), ("max-allowable-numa-nodes", "4")] {
            assert!(read(name, value).is_err_and(|why| why.to_string().contains(name)), "{name}");
        }
    }
}
