//! The running kubelet: which parts start in which order, and how they stop.

mod build;
mod cleanup;
mod tasks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Change, Client, Informers, Metrics, Random};
use stdx::clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::eviction::{self, signal_source};
use crate::gc::{self, Collector};
use crate::images::providers;
use crate::liveness::Liveness;
use crate::logs::rotation;
use crate::metrics;
use crate::model::pod;
use crate::model::state::ListPods;
use crate::network_gate::NetworkGate;
use crate::node::Node;
use crate::pod::context::PodContext;
use crate::pod::plan::restart;
use crate::pod::worker::Workers;
use crate::pod::{runtime_events, stop};
use crate::resources::cgroups::{GroupError, oom};
use crate::resources::disk::Disks;
use crate::resources::managers;
use crate::resources::usage::PodFiles;
use crate::runtime::Runtime;
use crate::sources::{self, mirror, url};
use crate::volumes::erase;
use build::WorkersHandle;

/// The dependencies of a kubelet.
pub struct Environment {
    /// Acts as the node.
    pub client: Client,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Node object, which is synced separately.
    pub node: Arc<Node>,
    /// The configuration.
    pub config: Arc<Config>,
    /// The time of statuses, events and backoffs.
    pub clock: Arc<dyn Clock>,
    /// The registry that metrics are recorded in.
    pub metrics: Metrics,
    /// Network policies of pods.
    pub network_gate: Arc<dyn NetworkGate>,
    /// The seed of random pauses.
    pub seed: u64,
}

/// A kubelet that runs.
pub struct Kubelet {
    pub(crate) context: Arc<PodContext>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) files: PodFiles,
    client: Client,
    node: Arc<Node>,
    informers: Arc<Informers>,
    tasks: Vec<JoinHandle<()>>,
}

impl Kubelet {
    /// Stops the kubelet; its pods keep running.
    pub async fn stop(self) {
        self.end_tasks().await;
    }

    /// Stops the kubelet, then its pods, each within its grace period. They stay pods of this node: the next kubelet
    /// starts them again.
    pub async fn stop_with_pods(self, report: &stop::StopObserver<'_>) {
        let (context, pods) = (self.context.clone(), self.workers.pods());
        self.end_tasks().await;
        stop::stop_pods(&context, pods, report).await;
    }

    async fn end_tasks(self) {
        self.workers.stop();
        self.context.statuses.close();
        self.informers.stop();
        self.tasks.iter().for_each(JoinHandle::abort);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// A kubelet that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The URL of static pods cannot be used.
    #[error(transparent)]
    Url(#[from] url::SourceError),
    /// A directory of the kubelet cannot be used.
    #[error("{}: {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The CPU, memory, topology or device manager cannot start.
    #[error(transparent)]
    Managers(#[from] managers::OpenError),
    /// The cgroups of pods cannot be created.
    #[error(transparent)]
    Cgroups(#[from] GroupError),
    /// The credential provider plugins cannot be used.
    #[error(transparent)]
    CredentialProviders(#[from] providers::OpenError),
    /// The container runtime has failed its first call.
    #[error("the container runtime does not respond: {}", .0.message())]
    Runtime(#[source] cri::Status),
}

impl StartError {
    fn directory(path: &Path) -> impl FnOnce(std::io::Error) -> StartError {
        let path = path.to_path_buf();
        move |source| StartError::Directory { path, source }
    }
}

/// Starts the kubelet; an error if the runtime does not respond.
pub async fn start(environment: Environment) -> Result<Kubelet, StartError> {
    start_on(environment, Arc::new(signal_source::System::default())).await
}

/// Starts the kubelet on a machine whose resources a test may simulate.
pub async fn start_on(
    environment: Environment,
    signal_source: Arc<dyn signal_source::SignalSource>,
) -> Result<Kubelet, StartError> {
    let config = &environment.config;
    let by_url = config.static_pod_url.as_deref();
    let by_url = by_url.map(|url| url::Source::new(url, &config.static_pod_url_headers)).transpose()?;
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Arc::new(Informers::new(environment.client.clone(), random));
    let (client, node) = (environment.client.clone(), environment.node.clone());
    let handle = WorkersHandle::default();
    let context = build::context(environment, &informers, &handle).await?;
    let workers = handle.create(&context);
    observe(&context, &workers);
    watch_pods(&context, &workers, &informers);
    informers.start();
    node.update_reports(|reports| reports.declared_features.push(restart::FEATURE.to_string()));
    let disks = Disks::new(context.clock.clone(), context.config.volume_stats_period);
    let files = PodFiles { config: context.config.clone(), disks, volumes: context.volumes.clone() };
    let liveness = Arc::new(Liveness::default());
    let mut kubelet = Kubelet { context, workers, liveness, files, client, node, informers, tasks: Vec::new() };
    let all_known = kubelet.start_sources(by_url);
    kubelet.start_node_tasks(&handle);
    kubelet.start_housekeeping(signal_source, all_known);
    Ok(kubelet)
}

/// The tasks that run as long as the kubelet does.
impl Kubelet {
    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(work));
    }

    fn workers_and_context(&self) -> (Arc<PodContext>, Arc<Workers>) {
        (self.context.clone(), self.workers.clone())
    }

    fn list_pods(&self) -> ListPods {
        let workers = self.workers.clone();
        Arc::new(move || workers.all())
    }

    /// Starts static pods and their mirror pods, and the cleanup of pods that no source has. The result becomes true
    /// once all sources have reported their pods: no pod is removed as unknown before that.
    fn start_sources(&mut self, by_url: Option<url::Source>) -> watch::Receiver<bool> {
        let (context, workers) = self.workers_and_context();
        let config = context.config.clone();
        let (by_files, files) = watch::channel(true);
        if let Some(path) = config.static_pod_path.clone() {
            let mut source = sources::FileSource::new(path, &config.node_name);
            by_files.send_replace(source.sync_pods(&workers));
            self.spawn(source.follow(config.file_check_frequency, workers.clone(), by_files));
        }
        let (reported, url) = watch::channel(by_url.is_none());
        if let Some(source) = by_url {
            self.spawn(url::follow(config, workers.clone(), source, reported));
        }
        let (all, all_known) = watch::channel(false);
        self.spawn(tasks::wait_for_all_sources(self.informers.clone(), [files, url], all));
        self.spawn(cleanup::remove_unknown(workers.clone(), context.clone(), all_known.clone()));
        let mirrors = mirror::Mirrors {
            client: self.client.clone(),
            node: context.node.clone(),
            pods: context.cache.pods.clone(),
            statuses: context.statuses.clone(),
        };
        self.spawn(mirror::follow(mirrors, workers, all_known.clone()));
        all_known
    }

    /// Watches the runtime, plugins and the kernel, and reports them in the node's status.
    fn start_node_tasks(&mut self, handle: &WorkersHandle) {
        let (context, workers) = self.workers_and_context();
        let node = self.node.clone();
        self.tasks.extend(context.statuses.start());
        let (runtime, pods) = (context.runtime.clone(), self.list_pods());
        self.tasks.extend(managers::tasks::start(&context.managers, runtime, node.clone(), pods, handle.wake()));
        self.spawn(runtime_events::watch(runtime_events::Watcher {
            runtime: context.runtime.clone(),
            workers: workers.clone(),
            liveness: self.liveness.clone(),
            metrics: context.metrics.clone(),
            clock: context.clock.clone(),
        }));
        self.spawn(tasks::watch_plugins(context.clone()));
        self.spawn(tasks::report_liveness(self.liveness.clone(), workers, node.clone()));
        self.spawn(tasks::report_volumes(context.clone(), node));
        self.spawn(tasks::enforce_allocatable(context.clone()));
        self.spawn(oom::watch(oom::OomWatcher {
            config: context.config.clone(),
            node: context.node.clone(),
            recorder: context.recorder.clone(),
        }));
    }

    /// Keeps the node from running out of memory and disk.
    fn start_housekeeping(
        &mut self,
        signal_source: Arc<dyn signal_source::SignalSource>,
        all_known: watch::Receiver<bool>,
    ) {
        let (context, workers) = self.workers_and_context();
        let PodContext { config, runtime, clock, recorder, metrics, .. } = &*context;
        let collector = Collector::new(
            gc::Environment {
                config: config.clone(),
                runtime: runtime.clone(),
                clock: clock.clone(),
                recorder: recorder.clone(),
                metrics: metrics.clone(),
                workers: workers.clone(),
                node: self.node.clone(),
            },
            all_known,
        );
        self.spawn(collector.clone().run());
        self.spawn(rotation::run(config.clone(), runtime.clone(), clock.clone(), self.list_pods()));
        self.spawn(erase::follow(erase::Eraser {
            client: self.client.clone(),
            node: context.node.clone(),
            runtime: runtime.clone(),
            volumes: context.volumes.clone(),
        }));
        let images = context.images.clone();
        self.spawn(async move { images.remove_stale_records().await });
        let manager = eviction::Manager {
            config: config.clone(),
            runtime: runtime.clone(),
            clock: clock.clone(),
            recorder: recorder.clone(),
            files: self.files.clone(),
            workers,
            node: self.node.clone(),
            collector,
            metrics: metrics.clone(),
            signal_source,
        };
        self.spawn(manager.run());
    }
}

fn observe(context: &PodContext, workers: &Arc<Workers>) {
    let workers = Arc::downgrade(workers);
    let list = move || workers.upgrade().map(|workers| (workers.all(), workers.mirrors()));
    metrics::observe_pods(&context.metrics, &context.node.name, list);
}

fn watch_pods(context: &Arc<PodContext>, workers: &Arc<Workers>, informers: &Informers) {
    let (workers, context) = (workers.clone(), context.clone());
    let pods = informers.informer(build::pods_of(&context.node.name));
    pods.on_change(move |change| pod_changed(&workers, &context, change));
}

fn pod_changed(workers: &Arc<Workers>, context: &PodContext, change: &Change) {
    let (old, new) = (&change.old, &change.new);
    if let Some(old) = old.as_ref().filter(|old| new.as_ref().is_none_or(|new| pod::uid(new) != pod::uid(old))) {
        workers.remove(pod::uid(old));
    }
    if let Some(mirror) = new.as_ref().filter(|new| pod::is_mirror(new)) {
        // A status that was set before the mirror pod existed has to be written now.
        context.statuses.check(pod::annotation(mirror, pod::MIRROR));
    }
    if let Some(new) = new.as_ref().filter(|new| !pod::is_mirror(new)) {
        context.starts.observe(new, context.now());
        workers.update(pod::of_api(new.tree()));
        context.statuses.check(pod::uid(new));
    }
}
