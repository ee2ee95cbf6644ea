//! What happens in the runtime: by its own events where it has them, and by looking at all that there is now and then,
//! which is all there is for runtimes without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::agent::Agent;
use crate::worker::Workers;

/// Without events.
const RELIST: Duration = Duration::from_secs(1);
/// With events, as a safety net.
const SLOW_RELIST: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes the workers of pods of which something has changed, until it is dropped.
pub async fn follow(agent: Arc<Agent>, workers: Arc<Workers>) {
    let mut marks = BTreeMap::new();
    loop {
        let has_events = listen(&agent, &workers, &mut marks).await;
        agent.pulse.expects_events(has_events);
        // The runtime may have ended: what happened meanwhile is found by looking.
        let pause = if has_events { PAUSE } else { RELIST };
        tokio::time::sleep(pause).await;
        relist(&agent, &workers, &mut marks).await;
    }
}

/// Follows the events until they end; false where there are none.
async fn listen(agent: &Agent, workers: &Arc<Workers>, marks: &mut BTreeMap<String, String>) -> bool {
    let Ok(mut events) = agent.runtime.service.get_container_events(cri::GetEventsRequest {}).await else {
        return false;
    };
    relist(agent, workers, marks).await;
    // From now on it is looked at seldom: nobody shall take that for silence.
    agent.pulse.expects_events(true);
    let mut heard = false;
    loop {
        let event = tokio::time::timeout(SLOW_RELIST, events.next()).await;
        match event {
            Err(_) => relist(agent, workers, marks).await,
            Ok(Some(Ok(event))) => {
                heard = true;
                agent.pulse.runtime_answers(Instant::now());
                let metadata = event.pod_sandbox_status.and_then(|status| status.metadata);
                if let Some(metadata) = metadata {
                    workers.wake(&metadata.uid);
                }
            }
            Ok(Some(Err(status))) => return heard || status.code() != cri::Code::Unimplemented,
            Ok(None) => return true,
        }
    }
}

async fn relist(agent: &Agent, workers: &Arc<Workers>, marks: &mut BTreeMap<String, String>) {
    let begun = Instant::now();
    let Ok(now) = agent.runtime.marks().await else { return };
    agent.pulse.relisted(&agent.metrics, begun, Instant::now(), agent.clock.now().seconds);
    for (uid, mark) in &now {
        if marks.get(uid) != Some(mark) {
            workers.wake(uid);
        }
    }
    marks.keys().filter(|uid| !now.contains_key(*uid)).for_each(|uid| workers.wake(uid));
    *marks = now;
}
