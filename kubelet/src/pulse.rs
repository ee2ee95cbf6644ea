//! Whether the agent and its runtime are alive: when each was last seen to go on, and what is said where that was
//! too long ago.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use api::time;
use client::Metrics;

use crate::agent::Agent;
use crate::meters;
use crate::node::Node;
use crate::worker::Workers;

const SECOND: i64 = 1_000_000_000;
const BEAT: Duration = Duration::from_secs(10);
/// The loop may take so long at least.
const LEAST: Duration = Duration::from_secs(300);
/// Without events the runtime is looked at each second; with them, seldom.
const THRESHOLD: i64 = 180 * SECOND;
const THRESHOLD_WITH_EVENTS: i64 = 600 * SECOND;

/// Nanoseconds since the epoch; 0 before the first time.
#[derive(Debug, Default)]
pub struct Pulse {
    of_loop: AtomicI64,
    of_runtime: AtomicI64,
    relisted: AtomicI64,
    has_events: AtomicBool,
}

impl Pulse {
    fn beats(&self, now: i64) {
        self.of_loop.store(now, Ordering::Relaxed);
    }

    pub fn expects_events(&self, has_events: bool) {
        self.has_events.store(has_events, Ordering::Relaxed);
    }

    pub fn runtime_answers(&self, now: i64) {
        self.of_runtime.store(now, Ordering::Relaxed);
    }

    pub fn relisted(&self, metrics: &Metrics, begun: i64, now: i64) {
        self.runtime_answers(now);
        let before = self.relisted.swap(now, Ordering::Relaxed);
        metrics.record(&meters::RELIST, &[], seconds(now - begun));
        if before > 0 {
            metrics.record(&meters::RELIST_INTERVAL, &[], seconds(now - before));
        }
        metrics.record(&meters::RELIST_LAST, &[], seconds(now));
    }

    /// What `/healthz/syncloop` says.
    pub fn sync_loop(&self, now: i64, sync_frequency: Duration) -> Result<(), String> {
        let most = i64::try_from((sync_frequency * 2).max(LEAST).as_nanos()).unwrap_or(i64::MAX);
        match self.of_loop.load(Ordering::Relaxed) {
            0 => Ok(()),
            last if now - last <= most => Ok(()),
            _ => Err("sync Loop took longer than expected".to_string()),
        }
    }

    /// Why the node is not ready, where the runtime has been silent for too long.
    pub fn runtime(&self, now: i64) -> Option<String> {
        let threshold = if self.has_events.load(Ordering::Relaxed) { THRESHOLD_WITH_EVENTS } else { THRESHOLD };
        let last = self.of_runtime.load(Ordering::Relaxed);
        let passed = now - last;
        (last > 0 && passed > threshold).then(|| {
            let (passed, threshold) = (time::format_duration(passed), time::format_duration(threshold));
            format!("PLEG is not healthy: pleg was last seen active {passed} ago; threshold is {threshold}")
        })
    }
}

fn seconds(nanos: i64) -> f64 {
    nanos.max(0) as f64 / 1e9
}

/// Shows that the workers can be reached, and tells the node of its runtime, until it is dropped.
pub async fn beat(agent: Arc<Agent>, workers: Arc<Workers>, node: Arc<Node>) {
    loop {
        // Whoever holds them for ever has stopped the loop.
        workers.pods();
        agent.pulse.beats(agent.now());
        let why = agent.pulse.runtime(agent.now());
        let says = |problem: &String| problem.starts_with("PLEG is not healthy");
        let said = agent.reports.borrow().problems.iter().any(says);
        if said || why.is_some() {
            node.tell(|reports| {
                reports.problems.retain(|problem| !says(problem));
                reports.problems.extend(why);
            });
        }
        tokio::time::sleep(BEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_runtime_and_a_loop_that_hangs_are_told() {
        let pulse = Pulse::default();
        let minute = 60 * SECOND;
        assert_eq!((pulse.runtime(9 * minute), pulse.sync_loop(9 * minute, BEAT)), (None, Ok(())), "nothing began");
        pulse.beats(minute);
        pulse.runtime_answers(minute);
        assert_eq!((pulse.runtime(4 * minute), pulse.sync_loop(6 * minute, BEAT)), (None, Ok(())));
        let why = "PLEG is not healthy: pleg was last seen active 3m30s ago; threshold is 3m0s";
        assert_eq!(pulse.runtime(4 * minute + 30 * SECOND).as_deref(), Some(why));
        assert!(pulse.sync_loop(6 * minute + SECOND, BEAT).is_err());
        assert_eq!(pulse.sync_loop(6 * minute + SECOND, Duration::from_secs(600)), Ok(()));
        pulse.expects_events(true);
        assert_eq!(pulse.runtime(10 * minute), None);
    }
}
