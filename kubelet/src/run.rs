//! The agent at work: what starts in which order, and how it ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use api::Tree;
use client::{Change, Client, Clock, Events, Informers, Metrics, Random, Resource, Selection};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admit::Admission;
use crate::agent::Agent;
use crate::cgroups::{Groups, names, oom};
use crate::collect::{self, Collector};
use crate::config::{CgroupDriver, Config};
use crate::disk::Disks;
use crate::images::Images;
use crate::images::providers::Providers;
use crate::make::memory;
use crate::managers::{self, Managers};
use crate::meters::{self, Starts};
use crate::node::{self, Node};
use crate::objects::Objects;
use crate::pod;
use crate::pressure::{Manager, senses};
use crate::probes::Probes;
use crate::pulse::{self, Pulse};
use crate::resize::Resizes;
use crate::rotation;
use crate::runtime::Runtime;
use crate::sources;
use crate::state::keys;
use crate::status::writer::Writer;
use crate::users::Users;
use crate::volumes::{Host, Volumes};
use crate::worker::{Ending, Workers, from_labels};
use crate::{erase, events};

const PODS: Resource = Resource::core("pods");
const SERVICES: Resource = Resource::core("services");
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
    let Environment { client, runtime, node, config, clock, metrics, seed } = environment;
    let name = config.node_name.clone();
    let by_url = config.static_pod_url.as_deref();
    let by_url = by_url.map(|url| sources::url::Source::new(url, &config.static_pod_url_headers)).transpose()?;
    make_folders(&config)?;
    let managers = Arc::new(Managers::open(config.clone(), Path::new("/"), clock.clone(), metrics.clone())?);
    let version = runtime.service.version(cri::VersionRequest { version: "v1".to_string() }).await;
    let version = version.map_err(|status| format!("the container runtime does not answer: {}", status.message()))?;
    let recursive_read_only = can_read_only_below(&runtime).await;
    let config = with_driver(config, &runtime).await;
    let machine = node::machine::read(Path::new("/"), &config.root_dir);
    let groups = Arc::new(Groups::open(config.clone(), &machine)?);
    let informers = Arc::new(Informers::new(client.clone(), Arc::new(Random::seeded(seed))));
    let pods = informers.informer(of_node(&name));
    let services = informers.informer(Selection::all(SERVICES));
    let classes = informers.informer(Selection::all(CLASSES));
    let telling = match config.requests.events {
        Some((per_second, burst)) => client.throttled(f64::from(per_second), burst),
        None => client.clone(),
    };
    let recorder = Events::start(clock.clone(), metrics.clone()).recorder(telling, "kubelet").on(&name);
    // Whoever finds something wakes the workers, which are made from all of this.
    let workers: Arc<OnceLock<Weak<Workers>>> = Arc::default();
    let wake = {
        let workers = workers.clone();
        move |uid: &str| {
            if let Some(workers) = workers.get().and_then(Weak::upgrade) {
                workers.wake(uid);
            }
        }
    };
    let end = {
        let workers = workers.clone();
        move |uid: &str, ending: Ending| {
            if let Some(workers) = workers.get().and_then(Weak::upgrade) {
                workers.end(uid, ending);
            }
        }
    };
    let objects = Arc::new(Objects::new(client.clone(), seed, wake.clone()));
    let shown = node.object();
    let allocatable =
        move || shown.borrow().as_ref().map(|node| node.at("status.allocatable").clone()).unwrap_or_default();
    let host = Host::new(config.clone(), &name, client.clone(), clock.clone(), objects.clone(), allocatable);
    let resizes = Resizes::new(config.clone(), wake.clone());
    let memory_rules = memory_rules(&config, &groups, machine.swap_bytes);
    let places = (config.credential_provider_config.as_deref(), config.credential_provider_bin_dir.as_deref());
    let providers = Providers::open(places, client.clone(), clock.clone())?;
    let starts = Arc::new(Starts::new(metrics.clone()));
    let agent = Arc::new(Agent {
        statuses: Writer::new(client.clone(), pods.store().clone()),
        images: Images::new(runtime.clone(), recorder.clone(), &config, providers, starts.clone()),
        probes: Probes::new(runtime.clone(), recorder.clone(), clock.clone(), wake.clone()),
        admission: Admission::default(),
        users: Users::open(config.clone()),
        managers,
        objects,
        volumes: Volumes::new(host),
        disks: Disks::new(clock.clone(), config.volume_stats_period),
        pods: pods.store().clone(),
        services: services.store().clone(),
        classes: classes.store().clone(),
        reports: node.reports(),
        object: node.object(),
        runtime_name: version.runtime_name,
        recursive_read_only,
        node: name,
        client,
        runtime: runtime.clone(),
        config,
        clock,
        recorder,
        memory: machine.memory_bytes,
        memory_rules,
        groups,
        resizes,
        metrics,
        starts,
        pulse: Pulse::default(),
        end: Box::new(end),
    });
    let made = Workers::new(agent.clone());
    let _ = workers.set(Arc::downgrade(&made));
    let workers = made;
    meters::look(&agent.metrics, &workers, &agent.node);
    let mut tasks = agent.statuses.start();
    let told = (workers.clone(), agent.clone());
    pods.on_change(move |change| pod_changed(&told.0, &told.1, change));
    informers.start();
    tasks.push(tokio::spawn(events::follow(agent.clone(), workers.clone())));
    let finding = agent.clone();
    tasks.push(tokio::spawn(async move {
        let devices = finding.managers.devices.clone();
        finding.volumes.run(&move |name, socket, versions| devices.register_found(name, socket, versions)).await;
    }));
    tasks.push(tokio::spawn(pulse::beat(agent.clone(), workers.clone(), node.clone())));
    node.tell(|reports| reports.declared_features.push(crate::plan::restart::FEATURE.to_string()));
    tasks.push(tokio::spawn(show_volumes(agent.clone(), node.clone())));
    tasks.extend(managers::tasks::start(&agent, node.clone(), &workers, wake));
    tasks.push(tokio::spawn(limit_pods(agent.clone())));
    let told = agent.clone();
    tasks.push(tokio::spawn(async move { oom::follow(&told).await }));
    if let Some(folder) = agent.config.static_pod_path.clone() {
        // Known before anything that nobody knows is taken away.
        sources::load(&workers, &folder, &agent.node);
        tasks.push(tokio::spawn(sources::follow_folder(agent.clone(), workers.clone(), folder)));
    }
    tasks.push(tokio::spawn(erase::follow(agent.clone())));
    let (all_known, known) = watch::channel(by_url.is_none());
    if let Some(source) = by_url {
        tasks.push(tokio::spawn(sources::url::follow(agent.clone(), workers.clone(), source, all_known)));
    }
    tasks.push(tokio::spawn(clean_up_unknown(runtime, workers.clone(), informers.clone(), agent.clone(), known)));
    let forgetting = agent.clone();
    tasks.push(tokio::spawn(async move { forgetting.images.forget_gone().await }));
    tasks.push(tokio::spawn(sources::mirror::follow(agent.clone(), workers.clone())));
    let metrics = agent.metrics.clone();
    let collector = Collector::new(agent.clone(), workers.clone(), node.clone(), metrics.clone());
    tasks.push(tokio::spawn(collector.clone().run(informers.clone())));
    tasks.push(tokio::spawn(rotation::run(agent.clone(), workers.clone())));
    let manager = Manager { agent: agent.clone(), workers: workers.clone(), node, collector, metrics, senses };
    tasks.push(tokio::spawn(manager.run()));
    Ok(Running { agent, workers, informers, tasks })
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

/// The runtime knows best whom it makes control groups with; one that does not say it goes by what was told.
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

fn make_folders(config: &Config) -> Result<(), String> {
    for folder in [config.root_dir.join("pods"), config.pod_logs_dir.clone()] {
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(())
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
        workers.update(new.tree());
        agent.statuses.check(pod::uid(new));
    }
}

/// Pods of which the runtime or a folder has something and nobody else knows: they were deleted while the agent was away.
async fn clean_up_unknown(
    runtime: Runtime,
    workers: Arc<Workers>,
    informers: Arc<Informers>,
    agent: Arc<Agent>,
    mut known: watch::Receiver<bool>,
) {
    informers.synced().await;
    if known.wait_for(|known| *known).await.is_err() && !*known.borrow() {
        return;
    }
    let Ok(listed) = runtime.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await else {
        return;
    };
    let mut running = BTreeSet::new();
    for sandbox in listed.items {
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
        workers.pods().iter().map(|pod| names::uid(pod).to_string()).chain(running.iter().cloned()).collect();
    if let Err(why) = agent.groups.clean_up(move |uid| known.contains(uid)).await {
        tracing::warn!(error = why, "a control group of a pod that is gone stays");
    }
    let is_unknown = |uid: &String| !workers.knows(uid) && !running.contains(uid);
    let left: Vec<String> = agent.volumes.reconstruct().unwrap_or_default().into_iter().filter(is_unknown).collect();
    collect::remove_logs(&agent.config.pod_logs_dir, &left);
    agent.volumes.clean_up(|uid| workers.knows(uid) || running.contains(uid)).await;
}
