//! Leader election with a Lease: one of several processes leads, and another takes over only after the lease was not
//! renewed for its duration. Expiration is determined by observed changes on the local clock, since machines' clocks
//! differ.

use std::sync::Arc;
use std::time::Duration;

use api::time::{Timestamp, format_micros};
use api::{Tree, tree};
use tokio::time::Instant;

use crate::watch::{Event, Watch};
use crate::{Client, Fence, Metrics, Random, Recorder, Resource, Result};
use stdx::clock::Clock;

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
/// Spreads the attempts of waiting candidates.
const JITTER: f64 = 0.2;
/// After an outage the leader gets so many retry periods to renew its lease.
const GRACE_PERIODS: u32 = 2;
/// A release conflicts with at most one renewal in flight; more attempts tolerate other writers of the lease.
const RELEASE_ATTEMPTS: usize = 5;

/// The durations of leader election.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long candidates wait after the last observed renewal.
    pub lease_duration: Duration,
    /// How long the leader retries a renewal before it stops leading.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    /// Whether the leader stops at the renew deadline although no other candidate has the lease. A server that checks
    /// fences makes that unnecessary, and a short outage would stop every component.
    pub stops_at_deadline: bool,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1500),
            retry_period: Duration::from_millis(400),
            stops_at_deadline: false,
        }
    }
}

/// The lease, and the identity of this candidate.
#[derive(Debug, Clone)]
pub struct Lock {
    pub namespace: String,
    pub name: String,
    pub identity: String,
}

/// A candidate for a lease.
pub struct Election {
    pub client: Client,
    pub lock: Lock,
    pub timing: Timing,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Random>,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub fence: Fence,
    /// Annotations that the leader sets on the lease.
    pub announces: LeaseAnnotations,
    pub observed: ObservedLease,
}

pub(crate) type LeaseAnnotations = Box<dyn Fn() -> Vec<(&'static str, String)> + Send + Sync>;

/// The last observed lease, and since when it is unchanged.
#[derive(Debug, Default)]
pub struct ObservedLease {
    lease: Option<(Tree, Instant)>,
    /// The last attempt failed: perhaps the leader could not renew either.
    is_interrupted: bool,
}

impl ObservedLease {
    fn observe(&mut self, lease: Option<&Tree>, now: Instant) {
        let same = |(seen, _): &(Tree, Instant)| lease.is_some_and(|lease| seen.at("spec") == lease.at("spec"));
        match (&mut self.lease, lease) {
            (Some(seen), Some(lease)) if same(seen) => seen.0 = lease.clone(),
            (_, lease) => self.lease = lease.map(|lease| (lease.clone(), now)),
        }
    }

    /// The server was not available: the lease expires at `grace` from now at the earliest.
    fn extend(&mut self, now: Instant, grace: Duration) {
        if let Some((lease, since)) = &mut self.lease {
            let lasts = duration_of(lease);
            *since = (*since).max((now + grace).checked_sub(lasts).unwrap_or(now));
        }
    }

    /// When the lease expires, unless it changes; None if it is free.
    fn expires(&self) -> Option<Instant> {
        let (lease, since) = self.lease.as_ref()?;
        (!lease.str("spec.holderIdentity").is_empty()).then(|| *since + duration_of(lease))
    }
}

fn duration_of(lease: &Tree) -> Duration {
    let seconds = lease.int("spec.leaseDurationSeconds").and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

#[derive(Debug, PartialEq)]
enum Decision {
    Create(Tree),
    /// Acquire or renew.
    Update(Tree),
    /// Another candidate holds it.
    Wait,
}

impl Election {
    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => break,
                Ok(false) => self.wait_for_turn().await,
                Err(error) => {
                    self.observed.is_interrupted = true;
                    tracing::warn!(lease = self.lock.name, %error, "failed to acquire lease");
                    self.pause().await;
                }
            }
        }
        let lease = self.observed.lease.as_ref().map(|(lease, _)| lease.clone()).unwrap_or_default();
        let transitions = lease.int("spec.leaseTransitions").unwrap_or(0);
        self.fence.set(&self.lock.namespace, &self.lock.name, &self.lock.identity, transitions);
        self.metrics.leads(&self.lock.name, true);
        tracing::info!(lease = self.lock.name, identity = self.lock.identity, transitions, "became leader");
        self.record_event(&lease, "became leader");
    }

    async fn pause(&self) {
        tokio::time::sleep(self.random.jitter(self.timing.retry_period, JITTER)).await;
    }

    /// Waits until the lease is released or expires. A candidate that may not watch it waits for the next attempt.
    async fn wait_for_turn(&mut self) {
        let pause = self.random.jitter(self.timing.retry_period, JITTER);
        let version = self.observed.lease.as_ref().map(|(lease, _)| lease.str("metadata.resourceVersion").to_string());
        let query = format!(
            "fieldSelector=metadata.name%3D{}&allowWatchBookmarks=true&resourceVersion={}",
            self.lock.name,
            version.unwrap_or_default()
        );
        match self.client.watch_namespace(LEASES, &self.lock.namespace, &query).await {
            Ok(watch) => self.follow(watch, pause).await,
            Err(_) => {
                let expires = self.observed.expires().unwrap_or_else(|| Instant::now() + pause);
                tokio::time::sleep_until(expires.min(Instant::now() + pause)).await;
            }
        }
    }

    /// Observes renewals. A watch that ends early is not opened again immediately.
    async fn follow(&mut self, mut watch: Watch, pause: Duration) {
        while let Some(expires) = self.observed.expires() {
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                () = tokio::time::sleep_until(expires) => return,
            };
            match event {
                Some(Ok(Event::Put(bytes))) => {
                    let lease = api::json::decode(&bytes).ok();
                    self.observed.observe(lease.as_ref(), Instant::now());
                }
                Some(Ok(Event::Deleted(_))) => return,
                Some(Ok(Event::Bookmark(_))) => {}
                Some(Err(_)) | None => {
                    tokio::time::sleep_until(expires.min(Instant::now() + pause)).await;
                    return;
                }
            }
        }
    }

    /// Renews the lease until that fails for too long or another candidate holds it.
    pub async fn renew_until_lost(&mut self) {
        loop {
            tokio::time::sleep(self.timing.retry_period).await;
            if !self.renew().await {
                self.metrics.leads(&self.lock.name, false);
                let lease = self.observed.lease.as_ref().map(|(lease, _)| lease.clone()).unwrap_or_default();
                self.record_event(&lease, "stopped leading");
                return;
            }
        }
    }

    /// Releases the lease, so that the next candidate need not wait.
    pub async fn release(&mut self) {
        let Some((mut lease, _)) = self.observed.lease.take() else { return };
        for _ in 0..RELEASE_ATTEMPTS {
            if lease.str("spec.holderIdentity") != self.lock.identity {
                return;
            }
            lease = match self.write_release(lease).await {
                Ok(Some(newer)) => newer,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(lease = self.lock.name, %error, "failed to release lease");
                    break;
                }
            };
        }
        self.metrics.leads(&self.lock.name, false);
    }

    /// Returns the lease as it is now if it has changed: a renewal that was cancelled may have been written.
    async fn write_release(&self, mut lease: Tree) -> Result<Option<Tree>> {
        let (namespace, name) = (&self.lock.namespace, &self.lock.name);
        lease.child("spec").set("holderIdentity", "");
        lease.child("spec").set("leaseDurationSeconds", 1);
        match self.client.update(LEASES, namespace, name, &lease).await {
            Err(error) if error.is_conflict() => self.client.get(LEASES, namespace, name).await.map(Some),
            written => written.map(|_| None),
        }
    }

    async fn renew(&mut self) -> bool {
        let mut deadline = Instant::now() + self.timing.renew_deadline;
        loop {
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Ok(leads)) => return leads,
                Ok(Err(error)) => tracing::warn!(lease = self.lock.name, %error, "failed to renew lease"),
                Err(_) => tracing::warn!(lease = self.lock.name, "renewing the lease takes too long"),
            }
            let now = Instant::now();
            if now >= deadline {
                if self.timing.stops_at_deadline {
                    return false;
                }
                deadline = now + self.timing.renew_deadline;
            }
            tokio::time::sleep(self.timing.retry_period.min(deadline - now)).await;
        }
    }

    /// Tries to acquire or renew the lease; returns whether this process holds it.
    async fn attempt(&mut self) -> Result<bool> {
        let started = Instant::now();
        let found = match self.client.get(LEASES, &self.lock.namespace, &self.lock.name).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        self.observed.observe(found.as_ref(), now);
        if std::mem::take(&mut self.observed.is_interrupted) || now - started > self.timing.retry_period {
            self.observed.extend(now, self.timing.retry_period * GRACE_PERIODS);
        }
        let unchanged =
            self.observed.lease.as_ref().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since));
        let (namespace, name) = (&self.lock.namespace, &self.lock.name);
        let written = match decide(found.as_ref(), unchanged, &self.lock, self.timing, self.clock.now()) {
            Decision::Wait => return Ok(false),
            Decision::Create(lease) => self.client.create(LEASES, namespace, &self.with_annotations(lease)).await,
            Decision::Update(lease) => self.client.update(LEASES, namespace, name, &self.with_annotations(lease)).await,
        };
        match written {
            // Another candidate was faster.
            Err(error) if error.is_already_exists() || error.is_conflict() => Ok(false),
            written => {
                self.observed.observe(Some(&written?), Instant::now());
                Ok(true)
            }
        }
    }

    fn with_annotations(&self, mut lease: Tree) -> Tree {
        for (name, text) in (self.announces)() {
            lease.child("metadata").child("annotations").set(name, text);
        }
        lease
    }

    fn record_event(&self, lease: &Tree, what: &str) {
        self.recorder.normal(lease, "LeaderElection", format!("{} {what}", self.lock.identity));
    }
}

/// Decides about a lease that has been unchanged for a time.
fn decide(lease: Option<&Tree>, unchanged: Duration, lock: &Lock, timing: Timing, now: Timestamp) -> Decision {
    let stamp = format_micros(now);
    let seconds = i64::try_from(timing.lease_duration.as_secs()).unwrap_or(i64::MAX);
    let mut spec = tree! {
        "holderIdentity" => lock.identity.as_str(),
        "leaseDurationSeconds" => seconds,
        "acquireTime" => stamp.clone(),
        "renewTime" => stamp,
        "leaseTransitions" => 0,
    };
    let Some(lease) = lease else {
        return Decision::Create(tree! {
            "apiVersion" => "coordination.k8s.io/v1",
            "kind" => "Lease",
            "metadata" => tree! { "namespace" => lock.namespace.as_str(), "name" => lock.name.as_str() },
            "spec" => spec,
        });
    };
    let old = lease.at("spec");
    let transitions = old.int("leaseTransitions").unwrap_or(0);
    let lasts = duration_of(lease);
    match old.str("holderIdentity") {
        holder if holder == lock.identity => {
            spec.set("acquireTime", old.at("acquireTime").clone());
            spec.set("leaseTransitions", transitions);
        }
        holder if !holder.is_empty() && unchanged < lasts => return Decision::Wait,
        _ => spec.set("leaseTransitions", transitions + 1),
    }
    let mut lease = lease.clone();
    lease.set("spec", spec);
    Decision::Update(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, transitions: i64) -> Tree {
        tree! {
            "metadata" => tree! { "resourceVersion" => "7" },
            "spec" => tree! {
                "holderIdentity" => holder, "leaseDurationSeconds" => 15, "leaseTransitions" => transitions,
                "acquireTime" => "before",
            },
        }
    }

    #[test]
    fn takes_only_expired_leases() {
        let lock = Lock { namespace: "kube-system".into(), name: "test".into(), identity: "me".into() };
        let decide = |lease: Option<&Tree>, seconds: u64| {
            let now = Timestamp { seconds: 0, nanos: 5000 };
            decide(lease, Duration::from_secs(seconds), &lock, Timing::default(), now)
        };
        let check = |lease: Tree, seconds: u64, want: Option<(i64, &str)>| match (decide(Some(&lease), seconds), want) {
            (Decision::Wait, None) => {}
            (Decision::Update(taken), Some((transitions, acquired))) => {
                assert_eq!(taken.str("spec.holderIdentity"), "me");
                assert_eq!(taken.str("metadata.resourceVersion"), "7", "the version guards the write");
                assert_eq!(taken.int("spec.leaseTransitions"), Some(transitions));
                assert_eq!(taken.str("spec.acquireTime"), acquired);
                assert_eq!(taken.str("spec.renewTime"), "1970-01-01T00:00:00.000005Z");
            }
            (other, want) => panic!("{other:?}, not {want:?}"),
        };
        let now = "1970-01-01T00:00:00.000005Z";
        check(lease("other", 3), 14, None);
        check(lease("other", 3), 15, Some((4, now)));
        check(lease("", 3), 0, Some((4, now)));
        check(lease("me", 3), 0, Some((3, "before")));
        check(lease("me", 3), 99, Some((3, "before")));
        let Decision::Create(made) = decide(None, 0) else { panic!("it is made") };
        assert_eq!((made.str("metadata.name"), made.int("spec.leaseTransitions")), ("test", Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_extends_the_lease() {
        let mut observed = ObservedLease::default();
        let start = Instant::now();
        let seconds = Duration::from_secs;
        observed.observe(Some(&lease("a", 1)), start);
        assert_eq!(observed.expires(), Some(start + seconds(15)));
        observed.extend(start + seconds(3), seconds(1));
        assert_eq!(observed.expires(), Some(start + seconds(15)), "it has not expired anyway");
        observed.extend(start + seconds(20), seconds(1));
        assert_eq!(observed.expires(), Some(start + seconds(21)));
        observed.observe(Some(&lease("", 2)), start);
        assert_eq!(observed.expires(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_lease_changes_count() {
        let mut observed = ObservedLease::default();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        observed.observe(Some(&lease("a", 1)), start);
        let mut labelled = lease("a", 1);
        labelled.child("metadata").set("resourceVersion", "8");
        observed.observe(Some(&labelled), start + second);
        let (seen, since) = observed.lease.as_ref().expect("a lease");
        assert_eq!((seen.str("metadata.resourceVersion"), *since), ("8", start));
        observed.observe(Some(&lease("a", 2)), start + second * 2);
        assert_eq!(observed.lease.as_ref().expect("a lease").1, start + second * 2);
        observed.observe(None, start + second * 3);
        assert!(observed.lease.is_none());
    }
}
