//! The liveness of the kubelet and its runtime: when each last made progress, and the error if that was too long ago.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::time;
use client::Metrics;
use stdx::sync::Mutex;
use tokio::time::Instant;

use crate::metrics;

/// The minimum of the sync loop's limit.
const LEAST: Duration = Duration::from_secs(300);
/// Without events the runtime is relisted each second; with events, rarely.
const THRESHOLD: Duration = Duration::from_secs(180);
const THRESHOLD_WITH_EVENTS: Duration = Duration::from_secs(600);

/// The time of the last heartbeat, on a monotonic clock: the machine's clock may be set.
#[derive(Debug, Default)]
struct Heartbeat(Mutex<Option<Instant>>);

impl Heartbeat {
    /// Sets the time, and returns the previous one.
    fn set(&self, now: Instant) -> Option<Instant> {
        self.0.lock().replace(now)
    }

    /// The age of the last heartbeat, if there was one.
    fn age(&self, now: Instant) -> Option<Duration> {
        self.0.lock().map(|last| now.saturating_duration_since(last))
    }
}

/// The sync loop has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sync Loop took longer than expected")]
pub struct SyncLoopError;

#[derive(Debug, Default)]
pub(crate) struct Liveness {
    of_loop: Heartbeat,
    of_runtime: Heartbeat,
    relisted: Heartbeat,
    has_events: AtomicBool,
}

impl Liveness {
    pub(crate) fn record_sync(&self, now: Instant) {
        self.of_loop.set(now);
    }

    pub(crate) fn set_has_events(&self, has_events: bool) {
        self.has_events.store(has_events, Ordering::Relaxed);
    }

    pub(crate) fn record_runtime_response(&self, now: Instant) {
        self.of_runtime.set(now);
    }

    /// Records a relist, from `begun` until `now`, which is `seconds` after the epoch.
    pub(crate) fn record_relist(&self, metrics: &Metrics, begun: Instant, now: Instant, seconds: i64) {
        self.record_runtime_response(now);
        let took = |since: Instant| now.saturating_duration_since(since).as_secs_f64();
        metrics.record(&metrics::RELIST, &[], took(begun));
        if let Some(before) = self.relisted.set(now) {
            metrics.record(&metrics::RELIST_INTERVAL, &[], took(before));
        }
        metrics.record(&metrics::RELIST_LAST, &[], seconds as f64);
    }

    /// The result of `/healthz/syncloop`.
    pub(crate) fn sync_loop(&self, now: Instant, sync_frequency: Duration) -> Result<(), SyncLoopError> {
        let most = (sync_frequency * 2).max(LEAST);
        match self.of_loop.age(now) {
            Some(age) if age > most => Err(SyncLoopError),
            _ => Ok(()),
        }
    }

    /// Why the node is not ready, if the runtime has not responded for too long.
    pub(crate) fn runtime(&self, now: Instant) -> Option<String> {
        let threshold = if self.has_events.load(Ordering::Relaxed) { THRESHOLD_WITH_EVENTS } else { THRESHOLD };
        let passed = self.of_runtime.age(now).filter(|passed| *passed > threshold)?;
        let text = |duration: Duration| time::format_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX));
        let (passed, threshold) = (text(passed), text(threshold));
        Some(format!("PLEG is not healthy: pleg was last seen active {passed} ago; threshold is {threshold}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(10);

    #[test]
    fn reports_a_silent_runtime_and_a_hanging_loop() {
        let (liveness, began) = (Liveness::default(), Instant::now());
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        assert_eq!(
            (liveness.runtime(after(540)), liveness.sync_loop(after(540), BEAT)),
            (None, Ok(())),
            "nothing began"
        );
        liveness.record_sync(after(60));
        liveness.record_runtime_response(after(60));
        assert_eq!((liveness.runtime(after(240)), liveness.sync_loop(after(360), BEAT)), (None, Ok(())));
        let why = "PLEG is not healthy: pleg was last seen active 3m30s ago; threshold is 3m0s";
        assert_eq!(liveness.runtime(after(270)).as_deref(), Some(why));
        assert!(liveness.sync_loop(after(361), BEAT).is_err());
        assert_eq!(liveness.sync_loop(after(361), Duration::from_secs(600)), Ok(()));
        liveness.set_has_events(true);
        assert_eq!(liveness.runtime(after(600)), None);
    }
}
