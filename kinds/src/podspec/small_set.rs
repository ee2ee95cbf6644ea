//! Detects duplicates. Lists of a pod are usually short, but a client may send a hundred thousand entries, and
//! quadratic comparison must not occupy the server.

use std::collections::HashSet;
use std::hash::Hash;

/// Up to this number entries are compared linearly, without hashing.
const FEW: usize = 16;

/// A set that is a plain list while it is small.
pub(crate) struct SmallSet<T> {
    few: Vec<T>,
    many: HashSet<T>,
}

impl<T: Hash + Eq + Copy> SmallSet<T> {
    pub(crate) fn new() -> SmallSet<T> {
        SmallSet { few: Vec::new(), many: HashSet::new() }
    }

    pub(crate) fn contains(&self, item: &T) -> bool {
        if self.many.is_empty() { self.few.contains(item) } else { self.many.contains(item) }
    }

    /// Returns false if it was already present.
    pub(crate) fn insert(&mut self, item: T) -> bool {
        if self.contains(&item) {
            return false;
        }
        if self.many.is_empty() && self.few.len() < FEW {
            self.few.push(item);
        } else {
            self.many.extend(self.few.drain(..));
            self.many.insert(item);
        }
        true
    }
}

impl<T: Hash + Eq + Copy> Default for SmallSet<T> {
    fn default() -> SmallSet<T> {
        SmallSet::new()
    }
}

impl<T: Hash + Eq + Copy> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> SmallSet<T> {
        let mut seen = SmallSet::new();
        for item in items {
            seen.insert(item);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_sets_are_equivalent() {
        for count in [1, FEW, FEW + 1, 1000] {
            let seen: SmallSet<usize> = (0..count).collect();
            assert!((0..count).all(|item| seen.contains(&item)), "{count}");
            assert!(!seen.contains(&count), "{count}");
        }
        let mut seen = SmallSet::new();
        assert!(seen.insert("a") && !seen.insert("a"));
    }
}
