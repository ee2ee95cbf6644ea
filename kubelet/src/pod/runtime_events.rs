//! Changes of containers: from the runtime's events if it has them, and from periodic relists, which are the only
//! source for other runtimes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Metrics;
use stdx::clock::Clock;
use tokio::time::Instant;
use tokio_stream::StreamExt;

use super::worker::Workers;
use crate::liveness::Liveness;
use crate::runtime::Runtime;

/// The interval of relists without events.
const RELIST: Duration = Duration::from_secs(1);
/// The interval with events, as a safety net, and the pause before a runtime without events is called for them again.
const SLOW_RELIST: Duration = Duration::from_secs(300);

/// What is watched, and what is notified of changes.
pub(crate) struct Watcher {
    pub(crate) runtime: Runtime,
    pub(crate) workers: Arc<Workers>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Wakes the workers of pods whose containers have changed, until it is dropped.
pub(crate) async fn watch(watcher: Watcher) {
    let mut marks = BTreeMap::new();
    let mut absent_since: Option<Instant> = None;
    loop {
        if absent_since.is_none_or(|since| since.elapsed() >= SLOW_RELIST) {
            let ended = listen(&watcher, &mut marks).await;
            watcher.liveness.expects_events(ended == Ended::After);
            absent_since = (ended == Ended::Absent).then(Instant::now);
        }
        tokio::time::sleep(RELIST).await;
        // The runtime may have been restarted: a relist finds missed changes, and the new one may have events.
        if !relist(&watcher, &mut marks).await {
            absent_since = None;
        }
    }
}

/// How it came that there are no events any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The runtime does not have any.
    Absent,
    /// It does not respond.
    Away,
    /// They were there.
    After,
}

/// Follows the events until they end.
async fn listen(watcher: &Watcher, marks: &mut BTreeMap<String, String>) -> Ended {
    let mut events = match watcher.runtime.service.get_container_events(cri::GetEventsRequest {}).await {
        Ok(events) => events,
        Err(status) if status.code() == cri::Code::Unimplemented => return Ended::Absent,
        Err(_) => return Ended::Away,
    };
    relist(watcher, marks).await;
    // From now on relists are rare, which must not count as a dead runtime.
    watcher.liveness.expects_events(true);
    let mut heard = false;
    loop {
        let event = tokio::time::timeout(SLOW_RELIST, events.next()).await;
        match event {
            Err(_) => _ = relist(watcher, marks).await,
            Ok(Some(Ok(event))) => {
                heard = true;
                watcher.liveness.runtime_answers(Instant::now());
                let metadata = event.pod_sandbox_status.and_then(|status| status.metadata);
                if let Some(metadata) = metadata {
                    watcher.workers.wake(&metadata.uid);
                }
            }
            Ok(Some(Err(status))) if !heard && status.code() == cri::Code::Unimplemented => return Ended::Absent,
            Ok(_) => return Ended::After,
        }
    }
}

/// Whether the runtime responds.
async fn relist(watcher: &Watcher, marks: &mut BTreeMap<String, String>) -> bool {
    let begun = Instant::now();
    let Ok(now) = watcher.runtime.marks().await else { return false };
    watcher.liveness.relisted(&watcher.metrics, begun, Instant::now(), watcher.clock.now().seconds);
    for (uid, mark) in &now {
        if marks.get(uid) != Some(mark) {
            watcher.workers.wake(uid);
        }
    }
    marks.keys().filter(|uid| !now.contains_key(*uid)).for_each(|uid| watcher.workers.wake(uid));
    *marks = now;
    true
}
