//! Backoff for failed daemon pods: the node may reject each replacement.

use std::collections::BTreeMap;
use std::time::Duration;

use api::time::Timestamp;
use stdx::backoff::pause_following;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Default)]
pub(super) struct Backoff(BTreeMap<String, (Timestamp, Duration)>);

impl Backoff {
    /// None if a replacement may be created now, which is recorded; otherwise the remaining backoff.
    pub(super) fn wait(&mut self, key: &str, now: Timestamp) -> Option<Duration> {
        self.remove_expired(now);
        let known = self.0.get(key).copied();
        if let Some(left) = known.and_then(|(since, pause)| pause.checked_sub(elapsed(since, now)))
            && !left.is_zero()
        {
            return Some(left);
        }
        let pause = pause_following(known.map(|(_, pause)| pause), FIRST, LONGEST);
        self.0.insert(key.to_string(), (now, pause));
        None
    }

    /// Entries that were not used for twice the longest backoff are dropped.
    fn remove_expired(&mut self, now: Timestamp) {
        self.0.retain(|_, (since, _)| elapsed(*since, now) <= LONGEST * 2);
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    let nanos = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    Duration::from_nanos(u64::try_from(nanos(now) - nanos(since)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn backoff_doubles_and_expires() {
        let mut backoff = Backoff::default();
        let second = Duration::from_secs(1);
        assert_eq!(backoff.wait("a", at(100)), None);
        assert_eq!(backoff.wait("a", at(100)), Some(second));
        assert_eq!(backoff.wait("b", at(100)), None, "another node has its own");
        assert_eq!(backoff.wait("a", at(101)), None);
        assert_eq!(backoff.wait("a", at(102)), Some(second), "two seconds now");
        assert_eq!(backoff.wait("a", at(103)), None);
        assert_eq!(backoff.wait("a", at(10_000)), None);
        assert_eq!(backoff.wait("a", at(10_000)), Some(second), "it was quiet for long");
    }
}
