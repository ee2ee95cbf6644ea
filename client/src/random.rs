//! A seeded random number generator: equal seeds give equal runs. Not for secrets.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A random number generator that can be seeded for tests.
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// A generator whose numbers follow from the seed.
    pub const fn seeded(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    /// An unpredictable seed, for production.
    pub fn fresh_seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// SplitMix64: the state is one addition, and threads need no lock.
    pub fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Between 0 and 1.
    pub fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between the duration and `1 + factor` times it, like upstream's wait.Jitter.
    pub fn jitter(&self, duration: Duration, factor: f64) -> Duration {
        duration.mul_f64(1.0 + factor * self.fraction())
    }

    /// Letters and digits that form no words, as in generated names.
    pub fn suffix(&self, length: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length).map(|_| char::from(ALPHABET[self.below(ALPHABET.len() as u64) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_reproducible() {
        let (one, same, other) = (Random::seeded(7), Random::seeded(7), Random::seeded(8));
        assert_eq!((one.suffix(5), one.next()), (same.suffix(5), same.next()));
        assert_ne!(one.next(), other.next());
        let second = Duration::from_secs(1);
        assert!((0..100).map(|_| one.jitter(second, 0.5)).all(|time| time >= second && time <= second * 3 / 2));
        assert_eq!(one.below(0), 0);
    }
}
