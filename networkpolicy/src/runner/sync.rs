//! The loop: waits for changes, applies them, and repairs rules that another process has changed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, Metrics};
use stdx::backoff::Backoff;
use stdx::error::chain;
use stdx::sync::Mutex;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch::Receiver;

use super::metrics;
use super::shared::Shared;
use super::watch::{PeerWatch, PolicyWatch};
use crate::kernel::{self, Kernel};
use crate::model::Cluster;
use crate::plan::plan;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// Changes that arrive together are applied together.
const MIN_PERIOD: Duration = Duration::from_millis(20);
/// Two processes that undo each other's changes do not use up a CPU.
const REPAIR_PERIOD: Duration = Duration::from_millis(500);
/// How often rules are verified if there are no notices.
const VERIFY_PERIOD: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) kernel: Arc<Mutex<Kernel>>,
    pub(super) policies: PolicyWatch,
    /// Only while there are policies.
    pub(super) peers: Option<PeerWatch>,
    pub(super) metrics: Metrics,
    pub(super) cleanup_on_stop: bool,
}

/// Why rules were not applied.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    #[error("the sync panicked")]
    Panic(#[from] tokio::task::JoinError),
}

/// When the next sync may start.
struct SyncPacer {
    started: Instant,
    /// Of the last sync: a node spends at most half of its time with syncs.
    took: Duration,
    /// The pause after a failure.
    retry: Option<Duration>,
}

impl Worker {
    pub(super) async fn run(mut self, mut stopped: Receiver<bool>, notices: OwnedFd) {
        tokio::select! {
            biased;
            () = stop_requested(&mut stopped) => {}
            () = self.apply_changes(notices) => {}
        }
        self.finish().await;
    }

    async fn apply_changes(&mut self, notices: OwnedFd) {
        // The descriptor is only waited for: the type does not matter, and this one needs no unsafe code.
        let notices = UdpSocket::from_std(std::net::UdpSocket::from(notices))
            .inspect_err(|error| tracing::error!(%error, "failed to watch for changes of network policy rules"))
            .ok();
        self.policies.synced().await;
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            self.wait_for_lists().await;
            let started = Instant::now();
            let retry = match self.sync().await {
                Ok(()) => {
                    backoff.reset();
                    None
                }
                Err(error) => {
                    let pause = backoff.next_pause();
                    tracing::error!(error = chain(&error), ?pause, "failed to apply network policies, retrying");
                    Some(pause)
                }
            };
            self.wait(&notices, SyncPacer { started, took: started.elapsed(), retry }).await;
        }
    }

    /// Watches pods and namespaces while there are policies, and waits for their lists: with a part of them,
    /// connections that are allowed would be cut.
    async fn wait_for_lists(&mut self) {
        loop {
            if self.shared.policies.lock().is_empty() {
                self.peers = None;
                return;
            }
            let peers = self.peers.get_or_insert_with(|| PeerWatch::start(&self.client, &self.shared));
            if peers.is_synced() {
                return;
            }
            tokio::select! {
                () = peers.synced() => {}
                () = self.shared.changed() => {}
            }
        }
    }

    /// Applies the current state.
    async fn sync(&self) -> Result<(), SyncError> {
        let started = Instant::now();
        let reported = self.shared.reported();
        let cluster = Cluster {
            node: self.shared.node.clone(),
            policies: self.shared.policies.lock().clone(),
            pods: self.peers.as_ref().map(PeerWatch::pods).unwrap_or_default(),
            namespaces: self.peers.as_ref().map(PeerWatch::namespaces).unwrap_or_default(),
            reported: reported.pods,
        };
        let kernel = self.kernel.clone();
        // Planning takes time if there are many pods, and the kernel may be waited for.
        let applied = tokio::task::spawn_blocking(move || {
            let table = plan(&cluster);
            Ok(kernel.lock().apply(table)?)
        });
        match applied.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(changes) => {
                self.metrics.record(&metrics::SYNC_DURATION, &[], started.elapsed().as_secs_f64());
                tracing::debug!(changes, elapsed = ?started.elapsed(), "applied network policies");
                self.shared.applied(reported.generation);
                Ok(())
            }
            Err(error) => {
                self.metrics.count(&metrics::SYNC_FAILURES, &[]);
                self.shared.failed(reported.generation, &chain(&error));
                Err(error)
            }
        }
    }

    /// Waits until there is something to do, and until the last sync is long enough ago.
    async fn wait(&self, notices: &Option<UdpSocket>, pace: SyncPacer) {
        let is_repair = loop {
            tokio::select! {
                biased;
                () = self.shared.changed() => break false,
                () = rules_notice(notices) => if self.are_rules_changed() { break true },
                () = retry_after(pace.retry) => break false,
            }
        };
        let period = if is_repair { REPAIR_PERIOD } else { MIN_PERIOD };
        let wait = period.max(pace.took * 2).saturating_sub(pace.started.elapsed());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn are_rules_changed(&self) -> bool {
        // Syncs are awaited, so the lock is free.
        match self.kernel.lock().is_tampered() {
            Ok(false) => return false,
            Ok(true) => tracing::warn!("network policy rules were changed by another process, replacing them"),
            Err(error) => tracing::error!(error = chain(&error), "failed to verify network policy rules"),
        }
        self.metrics.count(&metrics::REPAIRS, &[]);
        true
    }

    async fn finish(mut self) {
        self.policies.stop();
        self.peers = None;
        self.shared.stopped();
        if self.cleanup_on_stop {
            let kernel = self.kernel.clone();
            let cleaned = tokio::task::spawn_blocking(move || kernel.lock().cleanup()).await;
            if let Ok(Err(error)) = cleaned {
                tracing::error!(error = chain(&error), "failed to delete network policy rules");
            }
        }
    }
}

/// Waits until rules may have changed.
async fn rules_notice(notices: &Option<UdpSocket>) {
    let ready: io::Result<()> = match notices {
        // The notices are read by the kernel's side; here the readiness is reset.
        Some(notices) => notices.readable().await.inspect(|()| {
            drop(notices.try_io(Interest::READABLE, || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) }));
        }),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    if ready.is_err() {
        tokio::time::sleep(VERIFY_PERIOD).await;
    }
}

async fn stop_requested(stopped: &mut Receiver<bool>) {
    // A handle that is dropped stops the policies too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn retry_after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
