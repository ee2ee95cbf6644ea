//! Controllers and scheduler of an API server whose store is shared with other servers: each runs in the one process
//! that holds its lease. A process that has lost a lease stops the component at once, and becomes a candidate again.

use std::sync::Arc;
use std::time::Duration;

use client::election::{Election, Lock, Timing};
use client::{Events, Fence, Metrics, Random};
use stdx::sync::Mutex;
use store::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::in_process::LocalClients;
use crate::error::Result;

const NAMESPACE: &str = "kube-system";
/// The pause after a component that did not start.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A running component.
pub(super) trait Running: Send + Sync + 'static {
    /// Finishes its current work.
    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()>;
    /// Stops immediately: another process leads.
    fn abort(&self);
}

/// What starts a component with clients whose writes require the lease.
pub(super) type Start<R> = Box<dyn Fn(&LocalClients) -> Result<R> + Send + Sync>;

/// The component of this process while it leads.
pub(super) struct Slot<R>(Mutex<Option<Arc<R>>>);

impl<R> Slot<R> {
    pub(super) fn current(&self) -> Option<Arc<R>> {
        self.0.lock().clone()
    }
}

/// A candidate for the lease of a component.
pub(super) struct Candidate {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Candidate {
    /// Stops the component if it runs, and releases its lease.
    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// Runs a component whenever this process holds the lease with its name. The user of the election is in `groups`.
pub(super) fn campaign<R: Running>(
    clients: &LocalClients,
    name: &'static str,
    groups: &[&str],
    metrics: Metrics,
    start: Start<R>,
) -> (Candidate, Arc<Slot<R>>) {
    let slot = Arc::new(Slot(Mutex::new(None)));
    let (stop, stopped) = watch::channel(false);
    let fence = Fence::default();
    let work = ElectedWork {
        election: election(clients, name, groups, metrics, fence.clone()),
        clients: LocalClients { fence: Some(fence), ..clients.clone() },
        name,
        start,
        slot: slot.clone(),
    };
    (Candidate { stop, task: tokio::spawn(work.run(stopped)) }, slot)
}

fn election(clients: &LocalClients, name: &'static str, groups: &[&str], metrics: Metrics, fence: Fence) -> Election {
    let random = Random::seeded(Random::fresh_seed());
    let identity = format!("{}_{:016x}{:016x}", clients.host, random.next(), random.next());
    let client = clients.client(name, format!("system:{name}"), groups);
    let events = Events::start(clients.clock.clone(), metrics.clone());
    Election {
        lock: Lock { namespace: NAMESPACE.to_string(), name: name.to_string(), identity },
        timing: Timing::default(),
        clock: clients.clock.clone(),
        random: Arc::new(random),
        recorder: events.recorder(client.clone(), name),
        client,
        metrics,
        fence,
        announces: Box::new(Vec::new),
        observed: Default::default(),
    }
}

struct ElectedWork<R> {
    election: Election,
    clients: LocalClients,
    name: &'static str,
    start: Start<R>,
    slot: Arc<Slot<R>>,
}

impl<R: Running> ElectedWork<R> {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = self.election.acquire() => {}
            }
            let running = match (self.start)(&self.clients) {
                Ok(running) => Arc::new(running),
                Err(error) => {
                    tracing::error!(component = self.name, error = error.describe(), "failed to start component");
                    self.election.release().await;
                    tokio::time::sleep(RESTART_PAUSE).await;
                    continue;
                }
            };
            *self.slot.0.lock() = Some(running.clone());
            let is_lost = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => false,
                () = self.election.renew_until_lost() => true,
            };
            self.slot.0.lock().take();
            if is_lost {
                tracing::warn!(component = self.name, "lost the lease, stopping the component");
                running.abort();
                self.election.observed = Default::default();
                continue;
            }
            running.stop().await;
            self.election.release().await;
            return;
        }
    }
}

impl Running for controllers::Handle {
    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { controllers::Handle::stop(&self).await })
    }

    fn abort(&self) {
        controllers::Handle::abort(self);
    }
}

impl Running for Mutex<Option<scheduler::SchedulerHandle>> {
    fn stop(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let running = self.lock().take();
        Box::pin(async move {
            if let Some(running) = running {
                running.stop().await;
            }
        })
    }

    fn abort(&self) {
        if let Some(running) = self.lock().take() {
            running.abort();
        }
    }
}
