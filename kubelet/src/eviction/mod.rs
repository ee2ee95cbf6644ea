//! The eviction manager: when a resource of the node runs out, it sets the node's conditions, reclaims unused
//! resources, and then evicts pods, one at a time. [`threshold`], [`rank`], [`message`] and [`limits`] decide; this
//! module measures and acts.

mod limits;
mod message;
pub mod rank;
pub mod signal;
pub mod signal_source;
mod threshold;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::metrics::Metric;
use client::{Metrics, Recorder};
use stdx::clock::Clock;

use crate::clock;
use crate::config::Config;
use crate::gc::Collector;
use crate::model::pod;
use crate::model::pod::is_critical;
use crate::model::problem::Problem;
use crate::node::Node;
use crate::pod::status;
use crate::pod::worker::{Termination, Workers};
use crate::resources::disk::DiskUsage;
use crate::resources::usage::PodFiles;
use crate::resources::usage::{self, Files, container_name, value};
use crate::runtime::Runtime;
use rank::{Candidate, ContainerUsage, Layout, Usage};
use signal::{Condition, Measurements, Resource};
use signal_source::{Paths, SignalSource};
use threshold::{Progress, Threshold, Verdict};

/// How often signals are measured.
const PERIOD: Duration = Duration::from_secs(10);
/// How often the runtime is called for the location of its files.
const PLACES_SECONDS: i64 = 600;
/// The grace period of a pod that is evicted for a hard threshold.
const AT_ONCE_SECONDS: i64 = 1;
/// How long the manager waits for an evicted pod before it evicts the next one.
const CLEANUP: Duration = Duration::from_secs(30);
const CLEANUP_LOOK: Duration = Duration::from_secs(1);

static EVICTIONS: Metric =
    Metric::counter("kubelet_evictions", "Cumulative number of pod evictions by eviction signal", &["eviction_signal"]);

/// The eviction manager.
pub(crate) struct Manager {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Runtime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Recorder,
    pub(crate) files: PodFiles,
    pub(crate) workers: Arc<Workers>,
    pub(crate) node: Arc<Node>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) metrics: Metrics,
    pub(crate) signal_source: Arc<dyn SignalSource>,
}

/// State kept between two measurements.
struct History {
    thresholds: Vec<Threshold>,
    progress: Progress,
    reported: BTreeSet<Condition>,
    paths: Paths,
    /// Seconds; when the runtime was called for them, and when the limits of pods were checked.
    placed: Option<i64>,
    limited: Option<i64>,
    /// Evicted pods that may not have stopped yet.
    evicted: BTreeSet<String>,
}

impl Manager {
    pub(crate) async fn run(self) {
        let config = &self.config;
        let mut history = History {
            thresholds: threshold::thresholds(&config.eviction, &config.allocatable),
            progress: Progress::default(),
            reported: BTreeSet::new(),
            paths: Paths::of(config),
            placed: None,
            limited: None,
            evicted: BTreeSet::new(),
        };
        loop {
            match self.synchronize(&mut history).await {
                gone if gone.is_empty() => tokio::time::sleep(PERIOD).await,
                gone => self.wait_for(&gone).await,
            }
        }
    }

    /// One measurement, and its consequences. Returns the evicted pods.
    async fn synchronize(&self, history: &mut History) -> Vec<String> {
        self.find_image_dir(history).await;
        let seen = self.measure(history).await;
        let period = self.config.eviction.pressure_transition_period;
        let (verdict, progress) =
            threshold::evaluate(&history.thresholds, &seen, &history.progress, clock::unix_nanos(&*self.clock), period);
        history.progress = progress;
        self.report_conditions(history, &verdict);
        history.evicted.retain(|uid| self.workers.contains(uid));
        let over = self.evict_pods_over_limits(history).await;
        if !over.is_empty() {
            return over;
        }
        match verdict.due.first() {
            Some(_) => self.reclaim_or_evict(history, &verdict, &seen).await.into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Reads the directory of images from the runtime. The directory does not change, but the runtime may not have
    /// responded yet.
    async fn find_image_dir(&self, history: &mut History) {
        let now = self.clock.now().seconds;
        if history.placed.is_some_and(|last| (0..PLACES_SECONDS).contains(&(now - last))) {
            return;
        }
        let Ok(answer) = self.runtime.images.image_fs_info(cri::ImageFsInfoRequest {}).await else { return };
        let path = |of: Vec<cri::FilesystemUsage>| {
            let found = of.into_iter().next().and_then(|usage| usage.fs_id);
            found.map(|id| PathBuf::from(id.mountpoint))
        };
        history.paths.images = path(answer.image_filesystems);
        history.paths.containers = path(answer.container_filesystems).or_else(|| history.paths.images.clone());
        history.placed = Some(now);
    }

    /// Measures in a blocking task: a disk that hangs must not block other tasks.
    async fn measure(&self, history: &History) -> Measurements {
        let (signal_source, paths) = (self.signal_source.clone(), history.paths.clone());
        tokio::task::spawn_blocking(move || signal_source.measure(&paths)).await.unwrap_or_default()
    }

    async fn layout(&self, history: &History) -> Layout {
        let (signal_source, paths) = (self.signal_source.clone(), history.paths.clone());
        tokio::task::spawn_blocking(move || signal_source.layout(&paths)).await.unwrap_or(Layout::One)
    }

    fn report_conditions(&self, history: &mut History, verdict: &Verdict) {
        if history.reported == verdict.conditions {
            return;
        }
        history.reported = verdict.conditions.clone();
        let holds = |condition| verdict.conditions.contains(&condition);
        self.node.update_reports(|reports| {
            reports.memory_pressure = holds(Condition::Memory);
            reports.disk_pressure = holds(Condition::Disk);
            reports.pid_pressure = holds(Condition::Pid);
        });
    }

    async fn wait_for(&self, uids: &[String]) {
        let runs = |uid: &String| self.workers.find(uid).is_some_and(|(_, state)| !state.is_stopped());
        let gone = async {
            while uids.iter().any(runs) {
                tokio::time::sleep(CLEANUP_LOOK).await;
            }
        };
        if tokio::time::timeout(CLEANUP, gone).await.is_err() {
            tracing::warn!(?uids, "evicted pods are still terminating");
        }
    }
}

/// Reclaiming resources.
impl Manager {
    async fn reclaim_or_evict(&self, history: &mut History, verdict: &Verdict, seen: &Measurements) -> Option<String> {
        let due: Vec<Threshold> = verdict.due.iter().map(|at| history.thresholds[*at].clone()).collect();
        let first = due.first()?;
        let resource = first.signal.resource();
        let text = format!("Attempting to reclaim {}", resource.name());
        self.recorder.warning(&self.node.reference(), "EvictionThresholdMet", text);
        let layout = self.layout(history).await;
        if self.reclaim_node_resources(history, first, layout).await {
            return None;
        }
        let mut candidates = self.candidates(resource).await;
        rank::rank(&mut candidates, first.signal, layout);
        let one = candidates.iter().find(|one| !is_critical(&one.pod))?;
        let uid = pod::uid(&one.pod).to_string();
        // The pod is being evicted already; no other pod is evicted instead.
        if history.evicted.contains(&uid) {
            return None;
        }
        let text = message::message(resource, &one.pod, one.usage.as_ref(), &due, seen);
        let condition = Some(status::disruption(&one.pod, &text, self.clock.now().seconds));
        let grace = self.grace(&one.pod, first);
        self.evict(history, &one.pod, first.signal.name(), Termination { condition, ..termination(text, grace) });
        Some(uid)
    }

    /// Reclaims resources of the node; whether that was enough.
    async fn reclaim_node_resources(&self, history: &History, threshold: &Threshold, layout: Layout) -> bool {
        let (containers, images) = layout.reclaims(threshold.signal);
        if containers {
            self.collector.containers(true).await;
        }
        if images {
            self.collector.unused_images().await;
        }
        (containers || images) && threshold::is_relieved(&history.thresholds, &self.measure(history).await)
    }

    /// The pod's grace period, up to the maximum, for a soft threshold.
    fn grace(&self, pod: &Tree, threshold: &Threshold) -> i64 {
        let most = i64::try_from(self.config.eviction.max_pod_grace_period.as_secs()).unwrap_or(i64::MAX);
        match threshold.is_hard() {
            true => AT_ONCE_SECONDS,
            false => pod.int("spec.terminationGracePeriodSeconds").map_or(most, |own| own.min(most)),
        }
    }

    fn evict(&self, history: &mut History, pod: &Tree, signal: &str, ending: Termination) {
        let uid = pod::uid(pod);
        tracing::warn!(pod = pod::name(pod), why = ending.problem.message, "evicting pod");
        self.recorder.warning(pod, "Evicted", ending.problem.message.as_str());
        self.metrics.count(&EVICTIONS, &[signal]);
        self.workers.end(uid, ending);
        history.evicted.insert(uid.to_string());
    }

    /// Pods with running containers.
    fn active(&self) -> Vec<Arc<Tree>> {
        let runs = |pod: &Arc<Tree>| {
            !pod::is_over(pod) && self.workers.find(pod::uid(pod)).is_some_and(|(_, state)| !state.is_stopped())
        };
        self.workers.pods().into_iter().filter(runs).collect()
    }

    async fn candidates(&self, resource: Resource) -> Vec<Candidate> {
        let pods = self.active();
        let needs_disks = matches!(resource, Resource::Storage | Resource::Inodes);
        let mut files = match needs_disks {
            true => usage::files(&self.files, pods.iter().map(Arc::as_ref)).await,
            false => BTreeMap::new(),
        };
        let stats = usage::sandboxes(&*self.runtime.service).await.unwrap_or_else(|status| {
            tracing::warn!(error = status.message(), "failed to get pod statistics from the runtime");
            Vec::new()
        });
        let mut known: BTreeMap<String, cri::LinuxPodSandboxStats> = BTreeMap::new();
        for one in stats {
            let uid = one.attributes.and_then(|attributes| attributes.metadata).map(|metadata| metadata.uid);
            known.insert(uid.unwrap_or_default(), one.linux.unwrap_or_default());
        }
        let candidate = |pod: Arc<Tree>| {
            let files = files.remove(pod::uid(&pod)).unwrap_or_default();
            let usage = known.remove(pod::uid(&pod)).map(|stats| pod_usage(&stats, &files));
            Candidate { usage, pod }
        };
        pods.into_iter().map(candidate).collect()
    }
}

/// Limits of pods' own.
impl Manager {
    async fn evict_pods_over_limits(&self, history: &mut History) -> Vec<String> {
        let config = &self.config;
        let Some(period) = config.volume_stats_period.filter(|_| config.local_storage_capacity_isolation) else {
            return Vec::new();
        };
        let now = self.clock.now().seconds;
        let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
        if history.limited.is_some_and(|last| (0..period).contains(&(now - last))) {
            return Vec::new();
        }
        history.limited = Some(now);
        let is_limited = |pod: &Arc<Tree>| limits::is_limited(pod) && !history.evicted.contains(pod::uid(pod));
        let pods: Vec<Arc<Tree>> = self.active().into_iter().filter(is_limited).collect();
        if pods.is_empty() {
            return Vec::new();
        }
        let layout = self.layout(history).await;
        let mut files = usage::files(&self.files, pods.iter().map(Arc::as_ref)).await;
        let mut ended = Vec::new();
        for pod in pods.iter().filter(|pod| !is_critical(pod)) {
            let files = files.remove(pod::uid(pod)).unwrap_or_default();
            let stats = usage::containers(&*self.runtime.service, pod::uid(pod)).await.unwrap_or_default();
            let stats = cri::LinuxPodSandboxStats { containers: stats, ..Default::default() };
            let Some(excess) = limits::excess(pod, &pod_usage(&stats, &files), layout) else { continue };
            self.evict(history, pod, excess.signal, termination(excess.message, AT_ONCE_SECONDS));
            ended.push(pod::uid(pod).to_string());
        }
        ended
    }
}

fn termination(message: String, grace_seconds: i64) -> Termination {
    let problem = Problem { reason: "Evicted".into(), message };
    Termination { problem, grace_seconds: Some(grace_seconds), condition: None }
}

/// The usage of a pod, from the runtime and the disk.
fn pod_usage(stats: &cri::LinuxPodSandboxStats, files: &Files) -> Usage {
    let logs = |name: &str| files.logs.iter().find(|(other, _)| other == name).map(|(_, found)| found.used);
    let container = |one: &cri::ContainerStats| ContainerUsage {
        name: container_name(one).to_string(),
        memory: one.memory.as_ref().and_then(|memory| value(&memory.working_set_bytes)),
        root: one.writable_layer.as_ref().map(|layer| DiskUsage {
            bytes: value(&layer.used_bytes).unwrap_or(0),
            inodes: value(&layer.inodes_used).unwrap_or(0),
        }),
        logs: logs(container_name(one)),
    };
    Usage {
        memory: stats.memory.as_ref().and_then(|memory| value(&memory.working_set_bytes)).unwrap_or(0),
        processes: stats.process.as_ref().and_then(|process| value(&process.process_count)).unwrap_or(0),
        containers: stats.containers.iter().map(container).collect(),
        volumes: files.volumes.iter().map(|volume| (volume.name.clone(), volume.found.used)).collect(),
        files: files.own,
    }
}
