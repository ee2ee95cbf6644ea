//! The agent at work: what starts in which order, and how it ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use api::Tree;
use client::{Change, Client, Events, Informers, Metrics, Random, Resource, Selection};
use stdx::backoff::Backoff;
use stdx::clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admission::Admission;
use crate::config::{CgroupDriver, Config};
use crate::eviction::{Manager, senses};
use crate::gc::{self, Collector};
use crate::images::Images;
use crate::images::providers::Providers;
use crate::liveness::{self, Pulse};
use crate::logs::rotation;
use crate::metrics::{self, Starts};
use crate::model::pod;
use crate::model::state::keys;
use crate::node::{self, Node};
use crate::objects::Objects;
use crate::pod::context::Agent;
use crate::pod::cri_config::memory;
use crate::pod::probes::Probes;
use crate::pod::runtime_events;
use crate::pod::status::writer::Writer;
use crate::pod::stop;
use crate::pod::user_namespaces::Users;
use crate::pod::worker::{Ending, Workers, from_labels};
use crate::resources::cgroups::{Groups, oom};
use crate::resources::disk::Disks;
use crate::resources::managers::{self, Managers};
use crate::resources::resize::Resizes;
use crate::runtime::Runtime;
use crate::sources;
use crate::volumes::erase;
use crate::volumes::{Host, Volumes};

const PODS: Resource = Resource::core("pods");
const SERVICES: Resource = Resource::core("services");
/// Before the runtime is asked again, growing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const CLASSES: Resource = Resource::new("node.k8s.io", "v1", "runtimeclasses");

/// What the agent is given.
pub struct Environment {
    /// Acts as the node.
    pub client: Client,
    pub runtime: Runtime,
    /// The node's own object, which runs by itself.
    pub node: Arc<Node>,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Metrics,
    pub seed: u64,
}

/// An agent at work.
pub struct Running {
    pub agent: Arc<Agent>,
    pub workers: Arc<Workers>,
    informers: Arc<Informers>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Ends the agent; its pods run on.
    pub async fn stop(self) {
        self.end_tasks().await;
    }

    /// Stops the kubelet, then its pods, each within its grace period. They stay pods of this node: the next kubelet
    /// starts them again.
    pub async fn stop_with_pods(self, report: &stop::Report<'_>) {
        let (agent, pods) = (self.agent.clone(), self.workers.pods());
        self.end_tasks().await;
        stop::stop_pods(&agent, pods, report).await;
    }

    async fn end_tasks(self) {
        self.workers.stop();
        self.agent.statuses.close();
        self.informers.stop();
        self.tasks.iter().for_each(JoinHandle::abort);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Starts the agent; an error where the runtime does not answer.
pub async fn start(environment: Environment) -> Result<Running, String> {
    start_on(environment, Arc::new(senses::System::default())).await
}

/// The same on a machine that a test makes up.
pub async fn start_on(environment: Environment, senses: Arc<dyn senses::Senses>) -> Result<Running, String> {
    let config = &environment.config;
    let by_url = config.static_pod_url.as_deref();
    let by_url = by_url.map(|url| sources::url::Source::new(url, &config.static_pod_url_headers)).transpose()?;
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Arc::new(Informers::new(environment.client.clone(), random));
    let node = environment.node.clone();
    let later = Later::default();
    let agent = make_agent(environment, &informers, &later).await?;
    let workers = later.make(&agent);
    metrics::look(&agent.metrics, &workers, &agent.node);
    let told = (workers.clone(), agent.clone());
    let pods = informers.informer(of_node(&agent.node));
    pods.on_change(move |change| pod_changed(&told.0, &told.1, change));
    informers.start();
    node.tell(|reports| reports.declared_features.push(crate::pod::plan::restart::FEATURE.to_string()));
    let mut running = Running { agent, workers, informers, tasks: Vec::new() };
    let all_known = running.follow_sources(by_url);
    running.follow_node(node.clone(), &later);
    running.keep_tidy(node, senses, all_known);
    Ok(running)
}

/// The workers, for those whom they are made from: whoever finds something wakes them.
#[derive(Clone, Default)]
struct Later(Arc<OnceLock<Weak<Workers>>>);

impl Later {
    fn make(&self, agent: &Arc<Agent>) -> Arc<Workers> {
        let workers = Workers::new(agent.clone());
        let _ = self.0.set(Arc::downgrade(&workers));
        workers
    }

    fn then(&self, act: impl FnOnce(&Workers)) {
        if let Some(workers) = self.0.get().and_then(Weak::upgrade) {
            act(&workers);
        }
    }

    fn wake(&self) -> impl Fn(&str) + Clone + Send + Sync + 'static {
        let later = self.clone();
        move |uid: &str| later.then(|workers| workers.wake(uid))
    }
}

/// All that workers share, none of it at work yet.
async fn make_agent(environment: Environment, informers: &Informers, later: &Later) -> Result<Arc<Agent>, String> {
    let Environment { client, runtime, node, config, clock, metrics, seed } = environment;
    let runtime = runtime.limited(config.runtime_request_timeout);
    let name = config.node_name.clone();
    make_directories(&config)?;
    let managers = Arc::new(Managers::open(config.clone(), Path::new("/"), clock.clone(), metrics.clone())?);
    let version = runtime.service.version(cri::VersionRequest { version: "v1".to_string() }).await;
    let version = version.map_err(|status| format!("the container runtime does not answer: {}", status.message()))?;
    let recursive_read_only = can_read_only_below(&runtime).await;
    let config = with_driver(config, &runtime).await;
    let machine = node::machine::read(Path::new("/"), &config.root_dir);
    let groups = Arc::new(Groups::open(config.clone(), &machine)?);
    let store = |selection: Selection| informers.informer(selection).store().clone();
    let pods = store(of_node(&name));
    let telling = match config.requests.events {
        Some((per_second, burst)) => client.throttled(f64::from(per_second), burst),
        None => client.clone(),
    };
    let recorder = Events::start(clock.clone(), metrics.clone()).recorder(telling, "kubelet").on(&name);
    let objects = Arc::new(Objects::new(client.clone(), seed, later.wake()));
    let shown = node.object();
    let allocatable =
        move || shown.borrow().as_ref().map(|node| node.at("status.allocatable").clone()).unwrap_or_default();
    let host = Host::new(config.clone(), &name, client.clone(), clock.clone(), objects.clone(), allocatable);
    let places = (config.credential_provider_config.as_deref(), config.credential_provider_bin_dir.as_deref());
    let providers = Providers::open(places, client.clone(), clock.clone())?;
    let starts = Arc::new(Starts::new(metrics.clone()));
    let ending = later.clone();
    Ok(Arc::new(Agent {
        statuses: Writer::new(client.clone(), pods.clone()),
        images: Images::new(runtime.clone(), recorder.clone(), &config, providers, starts.clone()),
        probes: Probes::new(runtime.clone(), recorder.clone(), clock.clone(), later.wake()),
        admission: Admission::default(),
        users: Users::open(config.clone()),
        managers,
        objects,
        volumes: Volumes::new(host),
        disks: Disks::new(clock.clone(), config.volume_stats_period),
        pods,
        services: store(Selection::all(SERVICES)),
        services_known: informers.informer(Selection::all(SERVICES)).synced(),
        classes: store(Selection::all(CLASSES)),
        reports: node.reports(),
        object: node.object(),
        runtime_name: version.runtime_name,
        recursive_read_only,
        node: name,
        client,
        runtime,
        memory: machine.memory_bytes,
        memory_rules: memory_rules(&config, &groups, machine.swap_bytes),
        groups,
        resizes: Resizes::new(config.clone(), later.wake()),
        config,
        clock,
        recorder,
        metrics,
        starts,
        pulse: Pulse::default(),
        end: Box::new(move |uid: &str, end: Ending| ending.then(|workers| workers.end(uid, end))),
    }))
}

/// What goes on for as long as the agent does.
impl Running {
    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(work));
    }

    fn both(&self) -> (Arc<Agent>, Arc<Workers>) {
        (self.agent.clone(), self.workers.clone())
    }

    /// Pods that do not come from the API, mirrors of them, and what is left of pods that nobody knows. Whoever takes
    /// away what nobody knows waits for what is answered: it becomes true once all sources have told their pods.
    fn follow_sources(&mut self, by_url: Option<sources::url::Source>) -> watch::Receiver<bool> {
        let (agent, workers) = self.both();
        let (by_files, files) = watch::channel(true);
        if let Some(path) = agent.config.static_pod_path.clone() {
            let mut place = sources::Place::new(path, &agent.node);
            by_files.send_replace(place.look(&workers));
            self.spawn(place.follow(agent.clone(), workers.clone(), by_files));
        }
        let (told, url) = watch::channel(by_url.is_none());
        if let Some(source) = by_url {
            self.spawn(sources::url::follow(agent.clone(), workers.clone(), source, told));
        }
        let (all, all_known) = watch::channel(false);
        self.spawn(know_all(self.informers.clone(), [files, url], all));
        self.spawn(clean_up_unknown(workers.clone(), agent.clone(), all_known.clone()));
        self.spawn(sources::mirror::follow(agent, workers, all_known.clone()));
        all_known
    }

    /// What pods, the runtime and plugins do, and what the node says of it.
    fn follow_node(&mut self, node: Arc<Node>, later: &Later) {
        let (agent, workers) = self.both();
        self.tasks.extend(agent.statuses.start());
        self.tasks.extend(managers::tasks::start(&agent, node.clone(), &workers, later.wake()));
        self.spawn(runtime_events::follow(agent.clone(), workers.clone()));
        self.spawn(find_plugins(agent.clone()));
        self.spawn(liveness::beat(agent.clone(), workers, node.clone()));
        self.spawn(show_volumes(agent.clone(), node));
        self.spawn(limit_pods(agent.clone()));
        self.spawn(async move { oom::follow(&agent).await });
    }

    /// What keeps the node from running full.
    fn keep_tidy(&mut self, node: Arc<Node>, senses: Arc<dyn senses::Senses>, all_known: watch::Receiver<bool>) {
        let (agent, workers) = self.both();
        let metrics = agent.metrics.clone();
        let collector = Collector::new(agent.clone(), workers.clone(), node.clone(), metrics.clone(), all_known);
        self.spawn(collector.clone().run());
        self.spawn(rotation::run(agent.clone(), workers.clone()));
        self.spawn(erase::follow(agent.clone()));
        let forgetting = agent.clone();
        self.spawn(async move { forgetting.images.forget_gone().await });
        self.spawn(Manager { agent, workers, node, collector, metrics, senses }.run());
    }
}

/// Plugins of volumes and devices as they come and go.
async fn find_plugins(agent: Arc<Agent>) {
    let devices = agent.managers.devices.clone();
    agent.volumes.run(&move |name, socket, versions| devices.register_found(name, socket, versions)).await;
}

/// Says in the node's status which volumes must not be detached.
async fn show_volumes(agent: Arc<Agent>, node: Arc<Node>) {
    let mut used = agent.volumes.in_use();
    loop {
        let now = used.borrow_and_update().iter().cloned().collect();
        node.tell(|reports| reports.volumes_in_use = Some(now));
        if used.changed().await.is_err() {
            return;
        }
    }
}

/// The runtime knows best whom it makes cgroups with; one that does not say it goes by what was told.
async fn with_driver(config: Arc<Config>, runtime: &Runtime) -> Arc<Config> {
    let answer = runtime.service.runtime_config(cri::RuntimeConfigRequest {}).await;
    let Some(linux) = answer.ok().and_then(|answer| answer.linux) else { return config };
    let cgroup_driver = match linux.cgroup_driver() {
        cri::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        cri::CgroupDriver::Systemd => CgroupDriver::Systemd,
    };
    Arc::new(Config { cgroup_driver, ..(*config).clone() })
}

fn memory_rules(config: &Config, groups: &Groups, swap: i64) -> memory::Rules {
    let unified = groups.unified();
    memory::Rules {
        unified,
        counts_swap: groups.counts_swap(),
        swap: config.swap.limited.then_some(swap),
        throttling: config.memory_throttling_factor,
        reserves: config.reserves_memory,
        ends_whole: unified && config.single_process_oom_kill != Some(true),
        allocatable: 0,
    }
}

/// Pods may use more than they shall when the agent begins: it is tried until enough of them are gone.
async fn limit_pods(agent: Arc<Agent>) {
    if !agent.config.cgroups_per_qos {
        return;
    }
    loop {
        let groups = agent.groups.clone();
        let done = tokio::task::spawn_blocking(move || groups.limit_all()).await;
        match done.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => {
                let text = "Updated Node Allocatable limit across pods";
                return agent.recorder.normal(&agent.reference(), "NodeAllocatableEnforced", text);
            }
            Err(why) => {
                let text = format!("Failed to update Node Allocatable Limits: {why}");
                agent.recorder.warning(&agent.reference(), "FailedNodeAllocatableEnforcement", text);
            }
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

fn make_directories(config: &Config) -> Result<(), String> {
    let own = ["pods", "plugins", "plugins_registry"].map(|name| config.root_dir.join(name));
    for directory in own.iter().chain([&config.pod_logs_dir]) {
        crate::volumes::make_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    close_pod_dirs(&config.root_dir.join("pods"))
}

/// Directories of pods that an earlier version, or another program, has left open to every user.
fn close_pod_dirs(pods: &Path) -> Result<(), String> {
    let close = |path: &Path| {
        let closed = crate::volumes::close_to_others(path);
        closed.map_err(|error| format!("{}: {error}", path.display()))
    };
    close(pods)?;
    let entries = std::fs::read_dir(pods).map_err(|error| format!("{}: {error}", pods.display()))?;
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).try_for_each(|dir| close(&dir))
}

/// What the runtime's default handler says of itself.
async fn can_read_only_below(runtime: &Runtime) -> bool {
    let Ok(status) = runtime.service.status(cri::StatusRequest { verbose: false }).await else { return false };
    let default = status.runtime_handlers.into_iter().find(|handler| handler.name.is_empty());
    default.and_then(|handler| handler.features).is_some_and(|features| features.recursive_read_only_mounts)
}

/// The pods of one node.
fn of_node(node: &str) -> Selection {
    Selection::queried(PODS, &format!("fieldSelector=spec.nodeName%3D{node}"))
}

fn pod_changed(workers: &Arc<Workers>, agent: &Agent, change: &Change) {
    let (old, new) = (&change.old, &change.new);
    if let Some(old) = old.as_ref().filter(|old| new.as_ref().is_none_or(|new| pod::uid(new) != pod::uid(old))) {
        workers.remove(pod::uid(old));
    }
    if let Some(mirror) = new.as_ref().filter(|new| pod::is_mirror(new)) {
        // What was said of its pod before it was there has to be said again.
        agent.statuses.check(pod::annotation(mirror, pod::MIRROR));
    }
    if let Some(new) = new.as_ref().filter(|new| !pod::is_mirror(new)) {
        agent.starts.observe(new, agent.now());
        workers.update(pod::of_api(new.tree()));
        agent.statuses.check(pod::uid(new));
    }
}

/// Says so once the API and all other sources have told their pods.
async fn know_all(informers: Arc<Informers>, sources: [watch::Receiver<bool>; 2], all: watch::Sender<bool>) {
    informers.synced().await;
    for mut source in sources {
        if source.wait_for(|known| *known).await.is_err() {
            return;
        }
    }
    all.send_replace(true);
}

/// Pods of which the runtime or a directory has something and nobody else knows: they were deleted while the agent was away.
async fn clean_up_unknown(workers: Arc<Workers>, agent: Arc<Agent>, mut all_known: watch::Receiver<bool>) {
    if all_known.wait_for(|known| *known).await.is_err() {
        return;
    }
    let mut running = BTreeSet::new();
    for sandbox in list_sandboxes(&agent).await {
        let metadata = sandbox.metadata.unwrap_or_default();
        running.insert(metadata.uid.clone());
        // Others may use the runtime too.
        if sandbox.labels.get(keys::POD_UID) == Some(&metadata.uid) && !workers.knows(&metadata.uid) {
            let pod = from_labels(&metadata.uid, &metadata.name, &metadata.namespace);
            workers.clean_up(Arc::new(pod));
        }
    }
    let known: BTreeSet<String> = workers.pods().iter().map(|pod: &Arc<Tree>| pod::uid(pod).to_string()).collect();
    agent.statuses.keep(&known);
    agent.managers.keep(|uid| workers.knows(uid) || running.contains(uid));
    let known: BTreeSet<String> =
        workers.pods().iter().map(|pod| pod::uid(pod).to_string()).chain(running.iter().cloned()).collect();
    if let Err(why) = agent.groups.clean_up(move |uid| known.contains(uid)).await {
        tracing::warn!(error = why, "a cgroup of a pod that is gone stays");
    }
    let is_unknown = |uid: &String| !workers.knows(uid) && !running.contains(uid);
    let left: Vec<String> = agent.volumes.reconstruct().unwrap_or_default().into_iter().filter(is_unknown).collect();
    gc::remove_logs(&agent.config.pod_logs_dir, &left);
    agent.volumes.clean_up(|uid| workers.knows(uid) || running.contains(uid)).await;
}

/// All that the runtime has. It is asked until it answers: what is left of pods is looked for only once.
async fn list_sandboxes(agent: &Agent) -> Vec<cri::PodSandbox> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match agent.runtime.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await {
            Ok(listed) => return listed.items,
            Err(status) => tracing::warn!(error = status.message(), "the runtime does not say which pods it has"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}
