//! How long containers that crash wait before they are started again.

use std::collections::BTreeMap;
use std::time::Duration;

use stdx::backoff::pause_following;

use super::RestartBackoff;
use crate::clock::{is_within, nanos};

const FIRST: Duration = Duration::from_secs(10);

/// Of one pod, by container.
#[derive(Debug, Clone)]
pub(crate) struct Backoffs {
    longest: Duration,
    pauses: BTreeMap<String, ContainerBackoff>,
}

#[derive(Debug, Clone, Copy)]
struct ContainerBackoff {
    length: Duration,
    /// When the container was last restarted.
    since: i64,
}

impl Backoffs {
    pub(crate) fn new(longest: Duration) -> Backoffs {
        Backoffs { longest, pauses: BTreeMap::new() }
    }

    /// The pause of a container that ended at this time; None if it may be started now.
    pub(crate) fn wait(&self, name: &str, ended_at: i64, now: i64) -> Option<RestartBackoff> {
        let pause = self.current(name, ended_at)?;
        let until = ended_at.saturating_add(nanos(pause.length));
        let pause_seconds = i64::try_from(pause.length.as_secs()).unwrap_or(i64::MAX);
        is_within(now, until, pause.length).then(|| RestartBackoff { name: name.to_string(), until, pause_seconds })
    }

    /// Records a restart of the container: the next pause is longer.
    pub(crate) fn started_again(&mut self, name: &str, ended_at: i64, now: i64) {
        let previous = self.current(name, ended_at).map(|pause| pause.length);
        let length = pause_following(previous, FIRST, self.longest);
        self.pauses.insert(name.to_string(), ContainerBackoff { length, since: now });
    }

    /// The backoff ends after a container has run for long.
    fn current(&self, name: &str, ended_at: i64) -> Option<ContainerBackoff> {
        let redeemed = |pause: &&ContainerBackoff| ended_at - pause.since <= 2 * nanos(self.longest);
        self.pauses.get(name).filter(redeemed).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    #[test]
    fn clock_set_back_does_not_extend_the_backoff() {
        let hour = 3600;
        // The clock in seconds when the container ended, and now; whether it waits.
        let cases = [
            (100, 100, true),
            (100, 109, true),
            (100, 110, false),
            (100, 100 + hour, false),
            (100 + hour, 100, false),
            (100 + hour, 99 + hour, true),
        ];
        for (ended_at, now, waits) in cases {
            let mut backoffs = Backoffs::new(Duration::from_secs(300));
            backoffs.started_again("a", ended_at * SECOND, ended_at * SECOND);
            let wait = backoffs.wait("a", ended_at * SECOND, now * SECOND);
            assert_eq!(wait.is_some(), waits, "ended at {ended_at}, now {now}");
        }
    }
}
