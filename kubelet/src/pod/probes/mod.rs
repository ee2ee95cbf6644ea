//! Runs probes: one task each, while its container runs. Verdicts are kept by container ID, and the pod's worker is
//! woken when they change.

mod count;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Metrics, Recorder};
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::metrics::{PROBE_TIME, PROBES};
use crate::model::pod;
use crate::model::state::{Container, PodState};
use crate::pod::action::{self, Outcome, Target};
use crate::pod::plan::Verdicts;
use crate::runtime::Runtime;
use count::Count;

const AGENT: &str = "kube-probe/1.37";
const SECOND: i64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Startup,
    Liveness,
    Readiness,
}

const KINDS: [(Kind, &str, &str); 3] = [
    (Kind::Startup, "startupProbe", "Startup"),
    (Kind::Liveness, "livenessProbe", "Liveness"),
    (Kind::Readiness, "readinessProbe", "Readiness"),
];

pub(crate) struct Probes {
    runtime: Runtime,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    /// Called with the UID of a pod whose verdicts have changed.
    changed: Box<dyn Fn(&str) + Send + Sync>,
    known: Mutex<BTreeMap<String, ContainerProbes>>,
    /// Metrics of probes alone.
    pub(crate) metrics: Metrics,
}

/// The probes and verdicts of one container.
struct ContainerProbes {
    uid: String,
    verdicts: tokio::sync::watch::Sender<Verdicts>,
    tasks: Vec<(Kind, JoinHandle<()>)>,
}

impl Drop for ContainerProbes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|(_, task)| task.abort());
    }
}

impl Probes {
    pub(crate) fn new(
        runtime: Runtime,
        recorder: Recorder,
        clock: Arc<dyn Clock>,
        changed: impl Fn(&str) + Send + Sync + 'static,
    ) -> Arc<Probes> {
        Arc::new(Probes {
            runtime,
            recorder,
            clock,
            changed: Box::new(changed),
            known: Mutex::default(),
            metrics: Metrics::default(),
        })
    }

    pub(crate) fn verdicts(&self, container_id: &str) -> Verdicts {
        self.known().get(container_id).map_or_else(Verdicts::default, |known| *known.verdicts.borrow())
    }

    /// Starts the probes of running containers of a pod, and stops its other probes.
    pub(crate) fn follow(self: &Arc<Probes>, pod: &Arc<Tree>, state: &PodState, host: &str) {
        let uid = pod::uid(pod);
        let running: Vec<&Container> = state.containers.iter().filter(|seen| seen.is_running()).collect();
        self.known().retain(|id, known| known.uid != uid || running.iter().any(|seen| seen.id == *id));
        for seen in running {
            self.start(pod, seen, state, host);
        }
    }

    /// A terminating pod has only readiness probes.
    pub(crate) fn end(&self, uid: &str) {
        for known in self.known().values_mut().filter(|known| known.uid == uid) {
            known.tasks.iter().filter(|(kind, _)| *kind != Kind::Readiness).for_each(|(_, task)| task.abort());
        }
    }

    pub(crate) fn remove_pod(&self, pod: &Tree) {
        let [name, namespace, uid] = [pod::name(pod), pod::namespace(pod), pod::uid(pod)];
        self.known().retain(|_, known| known.uid != uid);
        for container in pod::containers(pod).map(|spec| spec.str("name")) {
            for (_, _, word) in KINDS {
                let results = ["successful", "failed", "unknown"];
                results.iter().for_each(|result| {
                    self.metrics.forget(&PROBES, &[word, result, container, name, namespace, uid]);
                });
                self.metrics.forget(&PROBE_TIME, &[word, container, name, namespace]);
            }
        }
    }

    fn start(self: &Arc<Probes>, pod: &Arc<Tree>, seen: &Container, state: &PodState, host: &str) {
        let Some(spec) = pod::container(pod, &seen.name) else { return };
        let probed = KINDS.iter().filter(|(_, field, _)| spec.has(field)).collect::<Vec<_>>();
        let mut known = self.known();
        if probed.is_empty() || known.contains_key(&seen.id) {
            return;
        }
        let (verdicts, _) = tokio::sync::watch::channel(before(pod, seen));
        let address = match pod.bool("spec.hostNetwork") {
            true => host.to_string(),
            false => state.sandbox().and_then(|sandbox| sandbox.addresses.first().cloned()).unwrap_or_default(),
        };
        let one = |(kind, field, word): &&(Kind, &'static str, &'static str)| {
            let probe = Probe {
                probes: Arc::downgrade(self),
                pod: pod.clone(),
                container: seen.name.clone(),
                id: seen.id.clone(),
                started_at: seen.started_at,
                address: address.clone(),
                kind: *kind,
                field,
                word,
                verdicts: verdicts.clone(),
            };
            (*kind, tokio::spawn(probe.run()))
        };
        let tasks = probed.iter().map(one).collect();
        known.insert(seen.id.clone(), ContainerProbes { uid: pod::uid(pod).to_string(), verdicts, tasks });
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, ContainerProbes>> {
        self.known.lock()
    }
}

/// The verdict on this container from before this process started.
fn before(pod: &Tree, seen: &Container) -> Verdicts {
    let lists = ["status.containerStatuses", "status.initContainerStatuses"];
    let old = lists.iter().flat_map(|list| pod.list(list)).find(|status| status.str("containerID").ends_with(&seen.id));
    let yes = |key: &str| old.filter(|old| old.bool(key)).map(|_| true);
    Verdicts { startup: yes("started"), readiness: yes("ready"), liveness: None }
}

struct Probe {
    probes: std::sync::Weak<Probes>,
    pod: Arc<Tree>,
    container: String,
    id: String,
    started_at: i64,
    address: String,
    kind: Kind,
    field: &'static str,
    word: &'static str,
    verdicts: tokio::sync::watch::Sender<Verdicts>,
}

impl Probe {
    async fn run(self) {
        // The startup probe has succeeded before this process started.
        if self.kind == Kind::Startup && self.current() == Some(true) {
            return;
        }
        let Some(spec) = pod::container(&self.pod, &self.container) else { return };
        let probe = spec.at(self.field);
        if self.kind != Kind::Startup && spec.has("startupProbe") {
            let mut changes = self.verdicts.subscribe();
            if changes.wait_for(|verdicts| verdicts.startup == Some(true)).await.is_err() {
                return;
            }
        }
        let seconds = |key: &str, otherwise: i64| {
            let value = probe.int(key).filter(|value| *value > 0 || key == "initialDelaySeconds");
            Duration::from_secs(value.unwrap_or(otherwise).unsigned_abs())
        };
        let (period, timeout) = (seconds("periodSeconds", 10), seconds("timeoutSeconds", 1));
        self.wait_for_start(seconds("initialDelaySeconds", 0)).await;
        let mut count = Count::of(probe, self.current());
        let mut next = Instant::now();
        loop {
            let outcome = self.run_probe(spec, probe, timeout).await;
            let Some(outcome) = outcome else { return };
            if let Some(verdict) = count.record(&outcome) {
                self.publish_verdict(verdict);
                if self.kind == Kind::Startup || self.kind == Kind::Liveness && !verdict {
                    return;
                }
            }
            next = (next + period).max(Instant::now());
            tokio::time::sleep_until(next).await;
        }
    }

    fn current(&self) -> Option<bool> {
        let verdicts = self.verdicts.borrow();
        match self.kind {
            Kind::Startup => verdicts.startup,
            Kind::Liveness => verdicts.liveness,
            Kind::Readiness => verdicts.readiness,
        }
    }

    async fn wait_for_start(&self, delay: Duration) {
        let Some(probes) = self.probes.upgrade() else { return };
        let now = probes.clock.now();
        drop(probes);
        let since = (now.seconds * SECOND + i64::from(now.nanos) - self.started_at).max(0).unsigned_abs();
        tokio::time::sleep(delay.saturating_sub(Duration::from_nanos(since))).await;
    }

    /// None if the container does not run any more.
    async fn run_probe(&self, spec: &Tree, probe: &Tree, timeout: Duration) -> Option<Outcome> {
        let probes = self.probes.upgrade()?;
        let target =
            Target { runtime: &probes.runtime, container_id: &self.id, address: &self.address, container: spec };
        let begun = Instant::now();
        let outcome = action::run(probe, &target, timeout, AGENT).await;
        self.count(&probes.metrics, &outcome, begun.elapsed());
        let word = self.word;
        match &outcome {
            Outcome::Success => {}
            Outcome::Warning(what) => {
                let text = format!("{word} probe warning: {what}");
                probes.recorder.warning(&self.subject(), "ProbeWarning", text);
            }
            Outcome::Failure(why) => {
                let text = format!("{word} probe failed: {why}");
                probes.recorder.warning(&self.subject(), "Unhealthy", text);
            }
            Outcome::Unknown(why) => {
                let text = format!("{word} probe errored and resulted in unknown state: {why}");
                probes.recorder.warning(&self.subject(), "Unhealthy", text);
            }
        }
        Some(outcome)
    }

    fn count(&self, metrics: &Metrics, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Success | Outcome::Warning(_) => "successful",
            Outcome::Failure(_) => "failed",
            Outcome::Unknown(_) => "unknown",
        };
        let [name, namespace, uid] = [pod::name(&self.pod), pod::namespace(&self.pod), pod::uid(&self.pod)];
        metrics.count(&PROBES, &[self.word, result, &self.container, name, namespace, uid]);
        metrics.record(&PROBE_TIME, &[self.word, &self.container, name, namespace], took.as_secs_f64());
    }

    /// The object reference of the container for events.
    fn subject(&self) -> Tree {
        crate::model::pod::subject(&self.pod, &self.container)
    }

    fn publish_verdict(&self, verdict: bool) {
        let changed = self.verdicts.send_if_modified(|verdicts| {
            let place = match self.kind {
                Kind::Startup => &mut verdicts.startup,
                Kind::Liveness => &mut verdicts.liveness,
                Kind::Readiness => &mut verdicts.readiness,
            };
            place.replace(verdict) != Some(verdict)
        });
        if let Some(probes) = self.probes.upgrade().filter(|_| changed) {
            (probes.changed)(pod::uid(&self.pod));
        }
    }
}
