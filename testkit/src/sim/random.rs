//! Random numbers from a seed.

use std::cell::Cell;
use std::time::Duration;

/// SplitMix64.
pub struct Random(Cell<u64>);

impl Random {
    /// A generator whose numbers follow from the seed.
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed ^ 0x5851_F42D_4C95_7F2D))
    }

    /// The next number.
    pub fn number(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut mixed = self.0.get();
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// A number in a range, including both ends.
    pub fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A duration in a range of seconds.
    pub fn seconds(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least * 1000, most * 1000))
    }

    /// One of the items.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).unwrap_or(0)]
    }
}
