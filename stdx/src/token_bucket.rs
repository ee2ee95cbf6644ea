//! A token bucket: a burst at once, and then a fixed rate.
//!
//! The caller hands in the time, so that a bucket works with every clock.

use std::time::{Duration, Instant};

use crate::clock::Timestamp;

/// A point in time of some clock.
pub trait TimePoint: Copy {
    /// The time since an earlier moment; zero if that one is later.
    fn since(self, earlier: Self) -> Duration;
}

impl TimePoint for Instant {
    fn since(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

#[cfg(feature = "tokio")]
impl TimePoint for tokio::time::Instant {
    fn since(self, earlier: tokio::time::Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl TimePoint for Timestamp {
    fn since(self, earlier: Timestamp) -> Duration {
        let nanos = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        Duration::from_nanos(u64::try_from((nanos(self) - nanos(earlier)).max(0)).unwrap_or(u64::MAX))
    }
}

/// A token that is filled in parts, 0.9 and 0.1, is whole despite the rounding.
const TOLERANCE: f64 = 1e-9;

/// Tokens that are added at a fixed rate, up to the burst.
#[derive(Debug, Clone)]
pub struct TokenBucket<M> {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: M,
}

impl<M: TimePoint> TokenBucket<M> {
    /// A full bucket, at this time.
    pub fn new(per_second: f64, burst: f64, now: M) -> TokenBucket<M> {
        TokenBucket { per_second, burst, tokens: burst, filled: now }
    }

    /// When a token was last taken or refused.
    pub fn last_used(&self) -> M {
        self.filled
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: M) -> bool {
        self.fill(now);
        let is_allowed = self.tokens >= 1.0 - TOLERANCE;
        if is_allowed {
            self.tokens = (self.tokens - 1.0).max(0.0);
        }
        is_allowed
    }

    /// Takes a token, perhaps one of those to come; how long the caller has to wait for it.
    pub fn reserve(&mut self, now: M) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        Duration::try_from_secs_f64((-self.tokens).max(0.0) / self.per_second).unwrap_or_default()
    }

    fn fill(&mut self, now: M) {
        let gained = now.since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_tokens_to_come() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 3.0, start);
        let mut reserve = |millis: u64| bucket.reserve(start + Duration::from_millis(millis)).as_millis();
        assert_eq!([reserve(0), reserve(0), reserve(0)], [0, 0, 0]);
        assert_eq!([reserve(0), reserve(0)], [100, 200]);
        assert_eq!(reserve(200), 100, "the tokens to come are reserved already");
        assert_eq!([reserve(10_000), reserve(10_000), reserve(10_000), reserve(10_000)], [0, 0, 0, 100]);
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn refuses_without_a_token() {
        let mut bucket = TokenBucket::new(1.0, 2.0, at(5));
        let mut take = |seconds: i64| bucket.try_take(at(seconds));
        assert_eq!([take(5), take(5), take(5)], [true, true, false]);
        assert_eq!([take(6), take(6)], [true, false]);
        assert!(!take(1), "a clock that goes back adds nothing");
        assert_eq!(bucket.last_used(), at(1));
    }
}
