//! The agent at work: what starts in which order, and how it ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use api::Tree;
use client::{Change, Client, Clock, Events, Informers, Metrics, Random, Resource, Selection};
use tokio::task::JoinHandle;

use crate::admit::Admission;
use crate::agent::Agent;
use crate::config::Config;
use crate::events;
use crate::images::Images;
use crate::managers::{Managers, pod_resources};
use crate::node::{self, Node};
use crate::objects::Objects;
use crate::pod;
use crate::probes::Probes;
use crate::runtime::Runtime;
use crate::sources;
use crate::state::keys;
use crate::status::writer::Writer;
use crate::users::Users;
use crate::volumes::{Host, Volumes};
use crate::worker::{Workers, from_labels};

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
    let Environment { client, runtime, node, config, clock, metrics, seed } = environment;
    let name = config.node_name.clone();
    make_folders(&config)?;
    let managers = Arc::new(Managers::open(config.clone(), Path::new("/"), clock.clone(), metrics.clone())?);
    let version = runtime.service.version(cri::VersionRequest { version: "v1".to_string() }).await;
    let version = version.map_err(|status| format!("the container runtime does not answer: {}", status.message()))?;
    let recursive_read_only = can_read_only_below(&runtime).await;
    let informers = Arc::new(Informers::new(client.clone(), Arc::new(Random::seeded(seed))));
    let pods = informers.informer(of_node(&name));
    let services = informers.informer(Selection::all(SERVICES));
    let classes = informers.informer(Selection::all(CLASSES));
    let recorder = Events::start(clock.clone(), metrics.clone()).recorder(client.clone(), "kubelet").on(&name);
    let memory = node::machine::read(Path::new("/"), &config.root_dir).memory_bytes;
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
    let objects = Arc::new(Objects::new(client.clone(), seed, wake.clone()));
    let shown = node.object();
    let allocatable =
        move || shown.borrow().as_ref().map(|node| node.at("status.allocatable").clone()).unwrap_or_default();
    let host = Host::new(config.clone(), &name, client.clone(), clock.clone(), objects.clone(), allocatable);
    let parallel = if config.serialize_image_pulls { Some(1) } else { config.max_parallel_image_pulls };
    let agent = Arc::new(Agent {
        statuses: Writer::new(client.clone(), pods.store().clone()),
        images: Images::new(runtime.clone(), recorder.clone(), clock.clone(), parallel),
        probes: Probes::new(runtime.clone(), recorder.clone(), clock.clone(), wake.clone()),
        admission: Admission::default(),
        users: Users::open(config.clone()),
        managers,
        objects,
        volumes: Volumes::new(host),
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
        memory,
    });
    let made = Workers::new(agent.clone());
    let _ = workers.set(Arc::downgrade(&made));
    let workers = made;
    let mut tasks = agent.statuses.start();
    let told = (workers.clone(), agent.clone());
    pods.on_change(move |change| pod_changed(&told.0, &told.1, change));
    informers.start();
    tasks.push(tokio::spawn(events::follow(runtime.clone(), workers.clone())));
    let finding = agent.clone();
    tasks.push(tokio::spawn(async move {
        let devices = finding.managers.devices.clone();
        finding.volumes.run(&move |name, socket, versions| devices.register_found(name, socket, versions)).await;
    }));
    node.tell(|reports| reports.declared_features = vec![crate::plan::restart::FEATURE.to_string()]);
    tasks.push(tokio::spawn(show_volumes(agent.clone(), node.clone())));
    tasks.push(tokio::spawn(serve_devices(agent.clone(), node, wake)));
    tasks.push(tokio::spawn(reconcile_cpus(agent.clone(), workers.clone())));
    tasks.push(tokio::spawn(pod_resources::serve(agent.managers.clone(), workers.clone())));
    if let Some(folder) = agent.config.static_pod_path.clone() {
        // Known before anything that nobody knows is taken away.
        sources::load(&workers, &folder, &agent.node);
        tasks.push(tokio::spawn(sources::follow_folder(agent.clone(), workers.clone(), folder)));
    }
    tasks.push(tokio::spawn(clean_up_unknown(runtime, workers.clone(), informers.clone(), agent.clone())));
    tasks.push(tokio::spawn(sources::mirror::follow(agent.clone(), workers.clone())));
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

/// Says in the node's status which devices there are.
async fn serve_devices(agent: Arc<Agent>, node: Arc<Node>, wake: impl Fn(&str) + Send + Sync + Clone + 'static) {
    let show = move |devices: node::facts::Devices| {
        if node.reports().borrow().devices != devices {
            node.tell(|reports| reports.devices = devices);
        }
    };
    agent.managers.devices.clone().run(show, wake).await;
}

async fn reconcile_cpus(agent: Arc<Agent>, workers: Arc<Workers>) {
    agent.managers.reconcile(agent.clone(), workers).await;
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
    if let Some(new) = new.as_ref().filter(|new| !pod::is_mirror(new)) {
        workers.update(new.tree());
        agent.statuses.check(pod::uid(new));
    }
}

/// Pods of which the runtime or a folder has something and nobody else knows: they were deleted while the agent was away.
async fn clean_up_unknown(runtime: Runtime, workers: Arc<Workers>, informers: Arc<Informers>, agent: Arc<Agent>) {
    informers.synced().await;
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
    agent.volumes.clean_up(|uid| workers.knows(uid) || running.contains(uid)).await;
}
