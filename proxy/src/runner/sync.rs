//! The loop of a proxy: waits for changes, applies them, and reports.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Tree, tree};
use client::{EventDetails, Informers, Recorder};
use stdx::backoff::Backoff;
use stdx::clock::Timestamp;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use super::confirm::RevisionConfirmer;
use super::pending::Batch;
use crate::backend::Error;
use crate::config::Mode;
use crate::proxier::Report;
use crate::serve::metrics;
use crate::serve::service_health::{BindError, ServiceHealthServers};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) informers: Informers,
    /// Reflectors of Services and EndpointSlices, which end with the worker.
    pub(super) reflectors: JoinSet<()>,
    pub(super) service_health: ServiceHealthServers,
    pub(super) recorder: Recorder,
    pub(super) confirm: RevisionConfirmer,
    pub(super) synced: watch::Sender<bool>,
    /// The time between verifications of rules, where the kernel does not report changes.
    pub(super) verify_period: Duration,
}

/// Why the loop wakes.
enum Wake {
    Stop,
    /// Objects have changed.
    Changes,
    /// Rules may have changed.
    Rules,
}

impl Worker {
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let revision = tokio::select! {
            biased;
            () = stop_requested(&mut stopped) => return self.finish().await,
            revision = self.shared.pending.first_lists() => revision,
        };
        let notices = self.notices();
        let mut retry = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let mut pause = None;
        let mut confirmed = revision;
        loop {
            let started = Instant::now();
            let batch = self.shared.pending.take();
            confirmed = confirmed.max(batch.revision);
            let is_awaited = batch.endpoint_left || !*self.synced.borrow() || pause.is_some();
            match self.sync(batch).await {
                Ok(endpoint_left) => {
                    self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
                    self.confirm.applied(confirmed, endpoint_left || is_awaited);
                    retry.reset();
                    pause = None;
                }
                Err(error) => {
                    tracing::error!(%error, source = source(&error), "failed to sync proxy rules, retrying");
                    pause = Some(retry.next_pause());
                }
            }
            if let Wake::Stop = self.wait(&mut stopped, &notices, started, pause).await {
                return self.finish().await;
            }
        }
    }

    /// Waits until there is something to do, and until the last sync is long enough ago.
    async fn wait(
        &mut self,
        stopped: &mut watch::Receiver<bool>,
        notices: &Option<UdpSocket>,
        started: Instant,
        pause: Option<Duration>,
    ) -> Wake {
        loop {
            let wake = tokio::select! {
                biased;
                () = stop_requested(stopped) => Wake::Stop,
                () = self.shared.pending.changed() => Wake::Changes,
                () = rules_notice(notices, self.verify_period) => Wake::Rules,
                () = retry_after(pause) => Wake::Changes,
            };
            match wake {
                Wake::Rules if !self.verify_rules().await => continue,
                Wake::Rules | Wake::Changes => {
                    let period = self.shared.config.min_sync_period(self.shared.mode);
                    let wait = period.saturating_sub(started.elapsed());
                    tokio::select! {
                        biased;
                        () = stop_requested(stopped) => return Wake::Stop,
                        () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                        () = std::future::ready(()), if wait.is_zero() => {}
                    }
                    return wake;
                }
                Wake::Stop => return Wake::Stop,
            }
        }
    }

    /// The descriptor of notices, which is only waited for: the type does not matter, and this one needs no unsafe code.
    fn notices(&self) -> Option<UdpSocket> {
        let fd = self.shared.proxier.lock().notices()?;
        UdpSocket::from_std(std::net::UdpSocket::from(fd))
            .inspect_err(|error| tracing::error!(%error, "failed to watch for changes of rules"))
            .ok()
    }

    /// A verification that takes long, because there are many rules, is done less often.
    async fn verify_rules(&mut self) -> bool {
        const SHARE: u32 = 50;
        let started = Instant::now();
        let are_changed = self.are_rules_changed().await;
        self.verify_period = self.shared.config.verify_period.max(started.elapsed() * SHARE);
        are_changed
    }

    async fn are_rules_changed(&self) -> bool {
        let checked = self.blocking(|shared| shared.proxier.lock().check_rules()).await;
        match checked {
            Some(Ok(true)) => {
                tracing::warn!("proxy rules were changed or deleted by another process, replacing them");
                true
            }
            Some(Ok(false)) | None => false,
            Some(Err(error)) => {
                tracing::error!(%error, "failed to verify proxy rules");
                self.shared.proxier.lock().request_replacement();
                true
            }
        }
    }

    /// Applies a batch, and returns whether an endpoint has left rotation.
    async fn sync(&mut self, mut batch: Batch) -> Result<bool, Error> {
        let started = Instant::now();
        let (services, slices) = (batch.services.len(), batch.slices.len());
        self.shared.metrics.record(&metrics::SERVICE_CHANGES, &[], services as f64);
        self.shared.metrics.record(&metrics::ENDPOINT_CHANGES, &[], slices as f64);
        let triggers = std::mem::take(&mut batch.triggers);
        if let Some(node) = batch.node.as_deref() {
            self.confirm.node_changed(node);
        }
        let outcome = self.blocking(move |shared| apply(&shared, batch)).await;
        let Some(outcome) = outcome else { return Ok(false) };
        if outcome.is_err() {
            let failures = match self.shared.mode {
                Mode::Iptables => &metrics::IPTABLES_FAILURES,
                Mode::Nftables | Mode::Userspace => &metrics::NFTABLES_FAILURES,
            };
            self.each_family(|family| self.shared.metrics.count(failures, &[family]));
        }
        let report = outcome?;
        if let Some(report) = &report {
            self.report(report, started.elapsed(), &triggers);
        }
        self.shared.health.set_eligible(self.shared.proxier.lock().is_eligible());
        let health = self.shared.proxier.lock().service_health();
        for error in self.service_health.sync(&health) {
            self.report_bind_error(&error);
        }
        let (services, slices) = self.shared.pending.counts();
        self.shared.metrics.record(&metrics::SERVICE_CHANGES_PENDING, &[], services as f64);
        self.shared.metrics.record(&metrics::ENDPOINT_CHANGES_PENDING, &[], slices as f64);
        if services + slices == 0 {
            self.shared.health.updated();
        }
        Ok(report.is_some_and(|report| report.endpoint_left))
    }

    fn report(&self, report: &Report, elapsed: Duration, triggers: &[Timestamp]) {
        let (all, now) = (&self.shared.metrics, self.shared.clock.since_epoch());
        self.each_family(|family| {
            all.record(&metrics::SYNC_DURATION, &[family], elapsed.as_secs_f64());
            let kind = if report.full { &metrics::FULL_SYNC_DURATION } else { &metrics::PARTIAL_SYNC_DURATION };
            all.record(kind, &[family], elapsed.as_secs_f64());
            all.record(&metrics::LAST_SYNC, &[family], now.as_secs_f64());
            all.record(&metrics::LAST_QUEUED, &[family], (now - elapsed.min(now)).as_secs_f64());
            for trigger in triggers {
                let at = trigger.seconds as f64 + f64::from(trigger.nanos) / 1e9;
                all.record(&metrics::PROGRAMMING_DURATION, &[family], (now.as_secs_f64() - at).max(0.0));
            }
        });
        if let Some(family) = self.shared.families.first() {
            all.record(&metrics::DELETED_CONNECTIONS, &[family.name()], report.connections as f64);
        }
        tracing::debug!(full = report.full, ports = report.ports, ?elapsed, "synced proxy rules");
    }

    fn each_family(&self, record: impl Fn(&'static str)) {
        self.shared.families.iter().for_each(|family| record(family.name()));
    }

    fn report_bind_error(&self, error: &BindError) {
        let BindError { service, port, error } = error;
        let node = &self.shared.config.node_name;
        let text = format!("node {node} failed to start healthcheck {service:?} on port {port}: {error}");
        tracing::error!(%service, port, %error, "failed to start the health check of a service");
        let (namespace, name) = client::split(service);
        let object: Tree = tree! {
            "apiVersion" => "v1", "kind" => "Service",
            "metadata" => tree! { "namespace" => namespace, "name" => name },
        };
        let note = EventDetails { reason: "FailedToStartServiceHealthcheck", action: "Listen", related: None, text };
        self.recorder.record_warning(&object, note);
    }

    /// Calls the kernel on a thread that may wait. None if it panicked, which is reported.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(Arc<Shared>) -> T + Send + 'static) -> Option<T> {
        let shared = self.shared.clone();
        let done = tokio::task::spawn_blocking(move || work(shared)).await;
        done.inspect_err(|error| {
            tracing::error!(%error, "syncing proxy rules panicked");
            self.shared.proxier.lock().request_replacement();
        })
        .ok()
    }

    async fn finish(mut self) {
        self.informers.stop();
        self.reflectors.abort_all();
        self.confirm.withdraw().await;
        if self.shared.config.cleanup_on_stop {
            let cleaned = self.blocking(|shared| shared.proxier.lock().cleanup()).await;
            if let Some(Err(error)) = cleaned {
                tracing::error!(%error, "failed to delete proxy rules");
            }
        }
    }
}

/// Reads a batch and syncs if that changes anything.
fn apply(shared: &Shared, batch: Batch) -> Result<Option<Report>, Error> {
    let mut proxier = shared.proxier.lock();
    for (key, service) in batch.services {
        proxier.put_service(&key, service);
    }
    for (key, slice) in batch.slices {
        proxier.put_slice(&key, slice);
    }
    if let Some(node) = batch.node.as_deref() {
        proxier.set_node(node);
    }
    if let Some(cidrs) = batch.service_cidrs {
        proxier.set_service_cidrs(cidrs);
    }
    if !proxier.is_pending() {
        return Ok(None);
    }
    proxier.sync().map(Some)
}

/// Waits until rules may have changed: for a notice, or for the next verification.
async fn rules_notice(notices: &Option<UdpSocket>, period: Duration) {
    match notices {
        Some(socket) => match socket.readable().await {
            // The notices are read by the backend; here the readiness is reset.
            Ok(()) => {
                drop(socket.try_io(Interest::READABLE, || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) }))
            }
            Err(_) => tokio::time::sleep(period).await,
        },
        None => tokio::time::sleep(period).await,
    }
}

async fn stop_requested(stopped: &mut watch::Receiver<bool>) {
    // A handle that is dropped stops the proxy too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn retry_after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// The cause of an error, which its text does not contain.
fn source(error: &Error) -> String {
    let mut text = String::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
