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

/// Watches the runtime, and notifies the workers of changes.
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
            watcher.liveness.set_has_events(ended == StreamEnd::After);
            absent_since = (ended == StreamEnd::Absent).then(Instant::now);
        }
        tokio::time::sleep(RELIST).await;
        // The runtime may have been restarted: a relist finds missed changes, and the new one may have events.
        if !relist(&watcher, &mut marks).await {
            absent_since = None;
        }
    }
}

/// Why a stream of events ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// The runtime does not have any.
    Absent,
    /// The runtime does not respond.
    Away,
    /// The runtime had sent events.
    After,
}

/// Follows the events until they end.
async fn listen(watcher: &Watcher, marks: &mut BTreeMap<String, String>) -> StreamEnd {
    let mut events = match watcher.runtime.service.get_container_events(cri::GetEventsRequest {}).await {
        Ok(events) => events,
        Err(status) if status.code() == cri::Code::Unimplemented => return StreamEnd::Absent,
        Err(_) => return StreamEnd::Away,
    };
    relist(watcher, marks).await;
    // From now on relists are rare, which must not count as a dead runtime.
    watcher.liveness.set_has_events(true);
    let mut received = false;
    loop {
        let event = tokio::time::timeout(SLOW_RELIST, events.next()).await;
        match event {
            Err(_) => _ = relist(watcher, marks).await,
            Ok(Some(Ok(event))) => {
                received = true;
                watcher.liveness.record_runtime_response(Instant::now());
                let metadata = event.pod_sandbox_status.and_then(|status| status.metadata);
                if let Some(metadata) = metadata {
                    watcher.workers.wake(&metadata.uid);
                }
            }
            Ok(Some(Err(status))) if !received && status.code() == cri::Code::Unimplemented => {
                return StreamEnd::Absent;
            }
            Ok(_) => return StreamEnd::After,
        }
    }
}

/// Whether the runtime responds.
async fn relist(watcher: &Watcher, marks: &mut BTreeMap<String, String>) -> bool {
    let begun = Instant::now();
    let Ok(now) = watcher.runtime.marks().await else { return false };
    watcher.liveness.record_relist(&watcher.metrics, begun, Instant::now(), watcher.clock.now().seconds);
    for (uid, mark) in &now {
        if marks.get(uid) != Some(mark) {
            watcher.workers.wake(uid);
        }
    }
    marks.keys().filter(|uid| !now.contains_key(*uid)).for_each(|uid| watcher.workers.wake(uid));
    *marks = now;
    true
}
