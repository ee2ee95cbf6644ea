//! Decides which thresholds are met and since when, and from that the node's conditions and what has to be reclaimed.
//! Pure: computed from measurements, earlier state and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::quantity::{Format, Quantity};

use super::signal::{Condition, Measurement, Measurements, Signal};
use crate::config::{Allocatable, Amount, Eviction};

#[derive(Debug, Clone)]
pub(crate) struct Threshold {
    pub(crate) signal: Signal,
    pub(crate) least: Amount,
    /// Zero for a hard threshold.
    pub(crate) grace: Duration,
    minimum_reclaim: Option<Amount>,
}

impl Threshold {
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// The least amount that must remain, as messages show it.
    pub(crate) fn quantity(&self, left: Measurement) -> Quantity {
        match &self.least {
            Amount::Quantity(quantity) => quantity.clone(),
            part => Quantity::new(part.of(left.capacity), Format::BinarySI),
        }
    }

    fn is_met(&self, seen: &Measurements, with_reclaim: bool) -> bool {
        let Some(left) = seen.get(&self.signal) else { return false };
        let more = self.minimum_reclaim.as_ref().filter(|_| with_reclaim).map_or(0, |more| more.of(left.capacity));
        self.least.of(left.capacity).saturating_add(more) > left.available
    }
}

/// The configured thresholds. If allocatable is enforced, its memory has the hard threshold of the node.
pub(crate) fn thresholds(eviction: &Eviction, allocatable: &Allocatable) -> Vec<Threshold> {
    let read = |one: &crate::config::Threshold| {
        Some(Threshold {
            signal: Signal::from_name(&one.signal)?,
            least: one.least.clone(),
            grace: one.grace_period.unwrap_or_default(),
            minimum_reclaim: one.minimum_reclaim.clone(),
        })
    };
    let mut all: Vec<Threshold> = eviction.thresholds.iter().filter_map(read).collect();
    if allocatable.enforced.iter().any(|one| one == "pods") {
        let of_node = |one: &&Threshold| one.signal == Signal::Memory && one.is_hard();
        let copy = |one: &Threshold| Threshold { signal: Signal::AllocatableMemory, ..one.clone() };
        let copies: Vec<Threshold> = all.iter().filter(of_node).map(copy).collect();
        all.extend(copies);
    }
    all
}

/// State kept between two measurements. Thresholds are named by their position in the list; times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    first_met: BTreeMap<usize, i64>,
    /// Met for longer than their grace period, and not yet resolved.
    due: Vec<usize>,
    last_seen: BTreeMap<Condition, i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) conditions: BTreeSet<Condition>,
    /// Indices of the thresholds that require an action, in the order in which they are handled.
    pub(crate) due: Vec<usize>,
}

pub(crate) fn evaluate(
    thresholds: &[Threshold],
    seen: &Measurements,
    before: &Progress,
    now: i64,
    transition: Duration,
) -> (Verdict, Progress) {
    let is_met = |at: &usize| {
        thresholds[*at].is_met(seen, false) || before.due.contains(at) && thresholds[*at].is_met(seen, true)
    };
    let first_met: BTreeMap<usize, i64> = (0..thresholds.len())
        .filter(is_met)
        .map(|at| (at, before.first_met.get(&at).copied().unwrap_or(now)))
        .collect();
    let mut last_seen = before.last_seen.clone();
    last_seen.extend(first_met.keys().map(|at| (thresholds[*at].signal.condition(), now)));
    let conditions = last_seen.iter().filter(|(_, at)| since(**at, now) < transition).map(|(one, _)| *one).collect();
    let is_due = |(at, first): &(&usize, &i64)| since(**first, now) >= thresholds[**at].grace;
    let mut due: Vec<usize> = first_met.iter().filter(is_due).map(|(at, _)| *at).collect();
    due.sort_by_key(|at| !matches!(thresholds[*at].signal, Signal::Memory | Signal::AllocatableMemory));
    (Verdict { conditions, due: due.clone() }, Progress { first_met, due, last_seen })
}

/// Whether no threshold is met any more after resources were reclaimed.
pub(crate) fn is_relieved(thresholds: &[Threshold], seen: &Measurements) -> bool {
    !thresholds.iter().any(|threshold| threshold.is_met(seen, true))
}

fn since(then: i64, now: i64) -> Duration {
    Duration::from_nanos(u64::try_from(now - then).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn threshold(signal: Signal, least: &str, grace: u64, more: Option<&str>) -> Threshold {
        let amount = |text: &str| Amount::parse(text).expect("an amount");
        let grace = Duration::from_secs(grace);
        Threshold { signal, least: amount(least), grace, minimum_reclaim: more.map(amount) }
    }

    fn seen(memory: i64, disk: i64) -> Measurements {
        let left = |available| Measurement { available, capacity: 1000 };
        BTreeMap::from([(Signal::Memory, left(memory)), (Signal::NodeFs, left(disk))])
    }

    /// The second, available memory and disk, and the result.
    type Step<'a> = (i64, i64, i64, &'a [Condition], &'a [usize]);

    fn check(thresholds: &[Threshold], steps: &[Step<'_>]) {
        let mut progress = Progress::default();
        for (at, memory, disk, conditions, due) in steps {
            let period = Duration::from_secs(30);
            let (verdict, next) = evaluate(thresholds, &seen(*memory, *disk), &progress, at * SECOND, period);
            let got: Vec<Condition> = verdict.conditions.into_iter().collect();
            assert_eq!((got.as_slice(), verdict.due.as_slice()), (*conditions, *due), "after {at} seconds");
            progress = next;
        }
    }

    #[test]
    fn hard_threshold_is_due_at_once_and_its_condition_lasts() {
        check(
            &[threshold(Signal::NodeFs, "10%", 0, None)],
            &[
                (0, 500, 100, &[], &[]),
                (10, 500, 99, &[Condition::Disk], &[0]),
                (20, 500, 100, &[Condition::Disk], &[]),
                (39, 500, 100, &[Condition::Disk], &[]),
                (40, 500, 100, &[], &[]),
            ],
        );
    }

    #[test]
    fn soft_threshold_waits_for_its_grace_period() {
        check(
            &[threshold(Signal::Memory, "200", 25, None)],
            &[
                (0, 199, 500, &[Condition::Memory], &[]),
                (20, 199, 500, &[Condition::Memory], &[]),
                (25, 150, 500, &[Condition::Memory], &[0]),
                (30, 200, 500, &[Condition::Memory], &[]),
                (40, 100, 500, &[Condition::Memory], &[]),
            ],
        );
    }

    #[test]
    fn minimum_reclaim_applies_once_a_threshold_is_met() {
        check(
            &[threshold(Signal::NodeFs, "100", 0, Some("5%"))],
            &[
                (0, 500, 140, &[], &[]),
                (10, 500, 90, &[Condition::Disk], &[0]),
                (20, 500, 149, &[Condition::Disk], &[0]),
                (30, 500, 150, &[Condition::Disk], &[]),
                (31, 500, 140, &[Condition::Disk], &[]),
            ],
        );
    }

    #[test]
    fn memory_comes_first_and_missing_signals_are_not_met() {
        let thresholds = [
            threshold(Signal::NodeFs, "100", 0, None),
            threshold(Signal::Pid, "100", 0, None),
            threshold(Signal::Memory, "100", 0, None),
        ];
        check(&thresholds, &[(0, 10, 10, &[Condition::Memory, Condition::Disk], &[2, 0])]);
        assert!(!is_relieved(&thresholds, &seen(10, 500)));
        assert!(is_relieved(&thresholds, &seen(100, 100)));
    }

    #[test]
    fn allocatable_memory_has_the_hard_memory_threshold() {
        let eviction = Eviction::default();
        let names = |enforced: &[&str]| -> Vec<&'static str> {
            let enforced = enforced.iter().map(|one| one.to_string()).collect();
            let all = thresholds(&eviction, &Allocatable { enforced, ..Allocatable::default() });
            all.iter().map(|one| one.signal.name()).collect()
        };
        assert_eq!(names(&["none"]).len(), 5);
        assert_eq!(names(&["pods"]).last(), Some(&"allocatableMemory.available"));
    }
}
