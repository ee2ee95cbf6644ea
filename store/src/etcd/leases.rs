//! etcd expires a key with its lease. Keys with the same TTL that are written at about the same time share one, as
//! upstream does: a lease per key would be a second write for each event.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stdx::sync::{Mutex, MutexGuard};

use super::client::{Client, failed};
use crate::Result;

/// Upstream's limits of sharing.
const MAX_KEYS: u32 = 1000;
const MAX_SHARED_SECONDS: u64 = 60;

#[derive(Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By TTL in seconds.
    current: BTreeMap<u64, Lease>,
    /// The expiration of our own leases by id; those of other servers are unknown.
    expires: BTreeMap<i64, u64>,
}

#[derive(Clone, Copy)]
struct Lease {
    id: i64,
    /// Not used for new keys after this second, since their TTL would be too short.
    until: u64,
    keys: u32,
}

impl Leases {
    /// A lease that expires at or shortly after `ttl` from now.
    pub(super) async fn lease(&self, client: &Client, ttl: Duration) -> Result<i64> {
        let seconds = ttl.as_secs().max(1) + u64::from(ttl.subsec_nanos() > 0 && ttl.as_secs() > 0);
        let now = now();
        if let Some(id) = self.lock_state().reuse(seconds, now) {
            return Ok(id);
        }
        let shared = (seconds / 20).min(MAX_SHARED_SECONDS);
        let granted = client.grant((seconds + shared) as i64).await.map_err(|status| failed(&status))?;
        let mut state = self.lock_state();
        state.expires.retain(|_, &mut expires| expires + MAX_SHARED_SECONDS > now);
        state.expires.insert(granted.id, now + granted.ttl.max(0) as u64);
        state.current.insert(seconds, Lease { id: granted.id, until: now + shared, keys: 1 });
        Ok(granted.id)
    }

    /// When a key with this lease expires; 0 for never, or for a lease of another server.
    pub(super) fn expires(&self, lease: i64) -> u64 {
        if lease == 0 { 0 } else { self.lock_state().expires.get(&lease).copied().unwrap_or(0) }
    }

    /// Records when a lease of another process expires.
    pub(super) fn learn(&self, lease: i64, expires: u64) {
        self.lock_state().expires.insert(lease, expires);
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn reuse(&mut self, seconds: u64, now: u64) -> Option<i64> {
        let lease = self.current.get_mut(&seconds)?;
        if now >= lease.until || lease.keys >= MAX_KEYS {
            return None;
        }
        lease.keys += 1;
        Some(lease.id)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_shared_within_limits() {
        let mut state = State::default();
        state.current.insert(3600, Lease { id: 7, until: 100, keys: MAX_KEYS - 2 });
        assert_eq!(state.reuse(60, 50), None, "another lifetime");
        assert_eq!(state.reuse(3600, 100), None, "too old");
        assert_eq!(state.reuse(3600, 99), Some(7));
        assert_eq!(state.reuse(3600, 99), Some(7));
        assert_eq!(state.reuse(3600, 99), None, "too many");
    }
}
