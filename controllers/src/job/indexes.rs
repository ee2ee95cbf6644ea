//! Sets of completion indexes in the format of the job status: `0,2-5,7`.

use std::collections::BTreeSet;
use std::fmt;

/// Sorted intervals with at least one missing index between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Indexes(Vec<(usize, usize)>);

impl Indexes {
    /// Parses a status or a rule. Invalid parts and indexes from `completions` on are ignored: the job may have been
    /// scaled down.
    pub(super) fn parse(text: &str, completions: usize) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
            if first < completions && first <= last {
                indexes.insert(first, last.min(completions - 1));
            }
        }
        indexes
    }

    pub(super) fn with(&self, more: impl IntoIterator<Item = usize>) -> Indexes {
        let mut all = self.clone();
        more.into_iter().for_each(|index| all.insert(index, index));
        all
    }

    pub(super) fn union(&self, other: &Indexes) -> Indexes {
        let mut all = self.clone();
        other.0.iter().for_each(|(first, last)| all.insert(*first, *last));
        all
    }

    /// Merges an interval with all adjacent and overlapping ones.
    fn insert(&mut self, first: usize, last: usize) {
        let start = self.0.partition_point(|there| there.1 + 1 < first);
        let end = self.0.partition_point(|there| there.0 <= last + 1);
        let touched = &self.0[start..end];
        let first = touched.first().map_or(first, |there| there.0.min(first));
        let last = touched.last().map_or(last, |there| there.1.max(last));
        self.0.splice(start..end, [(first, last)]);
    }

    pub(super) fn has(&self, index: usize) -> bool {
        let at = self.0.partition_point(|there| there.1 < index);
        self.0.get(at).is_some_and(|there| there.0 <= index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The number of indexes in both sets.
    pub(super) fn common(&self, other: &Indexes) -> usize {
        let overlap = |a: &(usize, usize), b: &(usize, usize)| (a.1.min(b.1) + 1).saturating_sub(a.0.max(b.0));
        self.0.iter().map(|a| other.0.iter().map(|b| overlap(a, b)).sum::<usize>()).sum()
    }

    /// The first `count` indexes below `completions` that are not in the set.
    pub(super) fn missing(&self, count: usize, completions: usize) -> Vec<usize> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            missing.extend((next..first.min(completions)).take(count - missing.len()));
            next = next.max(last + 1);
        }
        missing
    }
}

impl FromIterator<usize> for Indexes {
    fn from_iter<T: IntoIterator<Item = usize>>(indexes: T) -> Indexes {
        Indexes::default().with(indexes.into_iter().collect::<BTreeSet<usize>>())
    }
}

/// Two consecutive indexes are listed separately, three and more as a range.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_sets_round_trip() {
        let check = |text: &str, completions: usize, want: &str| {
            assert_eq!(Indexes::parse(text, completions).to_string(), want, "{text:?}");
        };
        check("", 5, "");
        check("0", 5, "0");
        check("0,1,2", 5, "0-2");
        check("0,1,3-4", 5, "0,1,3,4");
        check("1-9", 5, "1-4");
        check("3,7", 5, "3");
        check("x,1,2-y,4", 9, "1,4");
        check("4-2", 9, "");
    }

    #[test]
    fn adds_and_counts_indexes() {
        let some: Indexes = [7, 1, 2, 5].into_iter().collect();
        assert_eq!((some.to_string(), some.len()), ("1,2,5,7".to_string(), 4));
        assert_eq!(some.with([6, 0]).to_string(), "0-2,5-7");
        assert_eq!(some.union(&Indexes::parse("3-4,9", 10)).to_string(), "1-5,7,9");
        assert!(some.has(5) && !some.has(6) && !some.has(0) && !some.has(8));
        assert_eq!(some.common(&Indexes::parse("2-6", 10)), 2);
    }

    #[test]
    fn finds_missing_indexes() {
        let check = |text: &str, count: usize, completions: usize, want: &[usize]| {
            assert_eq!(Indexes::parse(text, completions).missing(count, completions), want, "{text:?}");
        };
        check("", 2, 5, &[0, 1]);
        check("0,2", 2, 5, &[1, 3]);
        check("0-3", 3, 5, &[4]);
        check("0-4", 3, 5, &[]);
        check("1", 0, 5, &[]);
    }
}
