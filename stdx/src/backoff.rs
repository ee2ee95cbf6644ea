//! Exponential backoff: pauses that double with every failure, up to a longest one.

use std::time::Duration;

/// The pauses of one retry loop.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts with `first`, which is at most `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, next: first }
    }

    /// The pause after a failure; the one after the next failure is twice as long.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = self.next.saturating_mul(2).min(self.longest);
        pause
    }

    /// The last attempt succeeded: the next pause is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// The pause after this many failures in a row; the first failure has the pause `first`.
pub fn pause_after(failures: u32, first: Duration, longest: Duration) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// The pause that follows `previous`: for tables that keep the last pause of each key.
pub fn pause_following(previous: Option<Duration>, first: Duration, longest: Duration) -> Duration {
    previous.map_or(first, |previous| previous.saturating_mul(2)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let millis: Vec<u128> = (0..5).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(millis, [200, 400, 800, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next_pause(), FIRST);
    }

    #[test]
    fn follows_the_previous_pause() {
        let millis =
            |previous: Option<u64>| pause_following(previous.map(Duration::from_millis), FIRST, LONGEST).as_millis();
        assert_eq!([None, Some(200), Some(400), Some(800), Some(u64::MAX)].map(millis), [200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn counts_failures() {
        let millis = |failures| pause_after(failures, FIRST, LONGEST).as_millis();
        assert_eq!(
            [0, 1, 2, 3, 4, 31, 32, 33, u32::MAX].map(millis),
            [200, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]
        );
    }
}
