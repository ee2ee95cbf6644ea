//! How long containers that crash wait before they are started again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Wait;

const FIRST: Duration = Duration::from_secs(10);
const SECOND: i64 = 1_000_000_000;

/// Of one pod, by container.
#[derive(Debug, Clone)]
pub struct Backoffs {
    longest: Duration,
    pauses: BTreeMap<String, Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    length: Duration,
    /// When it was last started again.
    since: i64,
}

impl Backoffs {
    pub fn new(longest: Duration) -> Backoffs {
        Backoffs { longest, pauses: BTreeMap::new() }
    }

    /// The pause of a container that ended then; none where it may be started now.
    pub fn wait(&self, name: &str, ended_at: i64, now: i64) -> Option<Wait> {
        let pause = self.current(name, ended_at)?;
        let until = ended_at.saturating_add(nanos(pause.length));
        let pause_seconds = i64::try_from(pause.length.as_secs()).unwrap_or(i64::MAX);
        (now < until).then(|| Wait { name: name.to_string(), until, pause_seconds })
    }

    /// It is started again: the next pause is longer.
    pub fn started_again(&mut self, name: &str, ended_at: i64, now: i64) {
        let first = FIRST.min(self.longest);
        let length = self.current(name, ended_at).map_or(first, |pause| (pause.length * 2).min(self.longest));
        self.pauses.insert(name.to_string(), Pause { length, since: now });
    }

    /// One that ran for long has redeemed itself.
    fn current(&self, name: &str, ended_at: i64) -> Option<Pause> {
        let redeemed = |pause: &&Pause| ended_at - pause.since <= 2 * nanos(self.longest);
        self.pauses.get(name).filter(redeemed).copied()
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).saturating_mul(SECOND)
}
