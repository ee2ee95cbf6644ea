//! Starts the parts of a control plane in order, and stops them in the reverse one.

pub mod addons;
mod elected;
pub mod extenders;
pub mod in_process;
pub(crate) mod manifests;
mod parts;
pub mod schedulers;
mod server_endpoints;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use scheduler::config::Configuration;
use server::Server;
use server::aggregation::ReadIdentity;
use server::authentication::Authentication;
use server::http::serve::Handshake;
use server::outbound::local_nodes::{LocalNodes, LogError};
use server::routes::health::Step;
use server::storage::cache::Caches;
use server::tls::{self, Serving};
use store::{Sink, Store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::machine::lock::Lock;
use crate::machine::loopback::LoopbackAddress;
use crate::machine::pod_address::{self, PodDevices};
use crate::node;
use crate::snapshots::Snapshots;
use in_process::LocalClients;
use parts::{ControllersPart, SchedulerPart};
use schedulers::Schedulers;
use server_endpoints::ServerEndpoints;

/// Everything that an API server needs, decided before anything is started.
pub struct Plan {
    pub engine: Engine,
    pub listen: SocketAddr,
    /// A hint for users how to choose another port.
    pub port_hint: &'static str,
    /// The address at which pods of this machine reach it; None if they use the address of `listen`.
    pub pod_address: Option<PodFacingAddress>,
    /// The serving certificate.
    pub serving: Arc<Serving>,
    pub tls: tls::Options,
    pub authentication: Authentication,
    pub config: server::Config,
    /// None if controllers run elsewhere.
    pub controllers: Option<Controllers>,
    /// The scheduler's configuration; None if it runs elsewhere.
    pub scheduler: Option<Configuration>,
    /// The cluster's CA certificates. A store whose cluster has another CA is refused; None without a check.
    pub cluster_ca: Option<String>,
    /// The proxy client certificate, for requests on behalf of clients.
    pub proxy: Option<ReadIdentity>,
    /// Scheduled snapshots of the store.
    pub snapshots: Option<Snapshots>,
    /// The data directory whose manifests are applied; None without add-ons.
    pub manifests: Option<PathBuf>,
    /// The number of fake nodes.
    pub fake_nodes: u32,
    /// The options of this machine's kubelet; None if it runs elsewhere.
    pub agent: Option<Box<node::options::Options>>,
    /// The lock of the data directory, held until the end.
    pub lock: Option<Lock>,
}

/// The address of an API server for the pods of its machine.
pub struct PodFacingAddress {
    pub address: IpAddr,
    /// The address to advertise if the server cannot listen there.
    pub fallback: IpAddr,
    /// Whether a device has the address; otherwise it is added to the loopback device.
    pub is_of_device: bool,
    /// The devices behind which the pods are.
    pub(crate) devices: PodDevices,
}

/// The controllers to run, in upstream's syntax, and their options.
pub struct Controllers {
    pub chosen: Vec<String>,
    pub options: Arc<controllers::Options>,
}

/// The storage engine.
pub enum Engine {
    Embedded(PathBuf),
    Etcd(Box<store::etcd::Config>),
    /// In memory only: for tests, in whose simulated time entries expire too.
    Memory,
}

/// A running API server.
pub struct ControlPlane {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    task: JoinHandle<()>,
    loops: ServerLoops,
    controllers: Option<ControllersPart>,
    scheduler: Option<SchedulerPart>,
    endpoints: Option<ServerEndpoints>,
    manifests: Option<manifests::Manifests>,
    fake_nodes: Option<fakenode::FakeNodes>,
    agent: Option<node::start::KubeletHandle>,
    /// The lock of the data directory, if this process writes there.
    lock: Option<Lock>,
    /// Dropped with the server.
    _pod_address: Option<LoopbackAddress>,
}

/// The loops of the API server itself.
struct ServerLoops {
    controllers: controllers::Handle,
    /// Collects container usage for the InitialResources admission plugin.
    usage: JoinHandle<()>,
    compaction: JoinHandle<()>,
    snapshots: Option<JoinHandle<()>>,
}

/// Whether the pods of this machine are stopped.
pub enum Pods<'a> {
    Keep,
    Stop(&'a kubelet::pod::stop::StopObserver<'a>),
}

impl ControlPlane {
    /// Stops nodes, scheduler and controllers, drains, then closes the store. Pods keep running.
    pub async fn stop(self) {
        self.stop_with(Pods::Keep).await;
    }

    /// Like [`ControlPlane::stop`]. Returns what of the pods could not be removed.
    pub(crate) async fn stop_with(self, pods: Pods<'_>) -> Vec<String> {
        let delay = self.server.config.limits.shutdown_delay;
        if !delay.is_zero() {
            // Load balancers observe that the server is not ready before it rejects connections.
            self.server.routes.health.set_leaving();
            tokio::time::sleep(delay).await;
        }
        let left = match (self.agent, pods) {
            (Some(agent), Pods::Stop(report)) => agent.stop_with_pods(report).await,
            (Some(agent), Pods::Keep) => {
                agent.stop().await;
                Vec::new()
            }
            (None, _) => Vec::new(),
        };
        if let Some(nodes) = self.fake_nodes {
            nodes.stop().await;
        }
        // Clients turn to other servers before this one closes their connections.
        if let Some(endpoints) = self.endpoints {
            endpoints.stop().await;
        }
        if let Some(manifests) = self.manifests {
            manifests.stop().await;
        }
        if let Some(scheduler) = self.scheduler {
            scheduler.stop().await;
        }
        if let Some(controllers) = self.controllers {
            controllers.stop().await;
        }
        self.loops.stop().await;
        self.server.closing.send_replace(true);
        let _ = self.task.await;
        if let Some(audit) = &self.server.config.audit {
            audit.stop().await;
        }
        if let Err(error) = self.server.registry.storage.store.close().await {
            tracing::error!(%error, "failed to close store");
        }
        drop(self.lock);
        left
    }

    /// Whether this machine runs pods.
    pub(crate) fn is_node(&self) -> bool {
        self.agent.is_some()
    }
}

/// Starts everything; `progress` is called with the name of each step when it begins. The order:
pub async fn start(mut plan: Plan, progress: &dyn Fn(&str)) -> Result<ControlPlane> {
    // The port first: a second start fails here, before it changes anything that the first one uses.
    progress("port");
    let listener = listen(plan.listen, plan.port_hint).await?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: plan.listen, source })?;
    // Unsupported TLS settings fail here, not at the first connection.
    tls::server_config(plan.serving.clone(), &plan.tls)?;
    let tls = Handshake { serving: plan.serving.clone(), options: plan.tls.clone() };
    let for_pods = listen_for_pods(&mut plan, address.port()).await;
    // The store before any client is served: responses must show everything.
    progress("store");
    let (chosen, scheduling) = (plan.controllers.take(), plan.scheduler.take());
    plan.config.port = address.port();
    // Other servers may run controllers and a scheduler on the same store.
    let is_shared = matches!(plan.engine, Engine::Etcd(_));
    let server = Box::pin(open(plan.engine, plan.config, plan.authentication)).await?;
    // Nothing is written into the store of another cluster.
    check_store(&server, plan.cluster_ca.as_deref(), is_shared)?;
    progress("API server");
    let pod_address = for_pods.map(|(pod_address, listener)| {
        tokio::spawn(server::http::serve::serve(server.clone(), listener, tls.clone()));
        pod_address
    });
    let task = tokio::spawn(server::http::serve::serve(server.clone(), listener, tls));
    // Objects that are written through the server itself; readiness depends on them.
    let bootstrap = server::bootstrap::run(&server).await;
    bootstrap.map_err(|status| Error::Bootstrap(status.message.clone()))?;
    // Repairs before controllers rely on the objects.
    let metrics = show_metrics(&server);
    let loops = ServerLoops::start(&server, metrics.clone(), plan.snapshots);
    // The controllers need roles to act by.
    let controllers =
        chosen.map(|chosen| ControllersPart::start(&server, chosen, metrics.clone(), is_shared)).transpose()?;
    let scheduler = scheduling
        .map(|configuration| SchedulerPart::start(&server, configuration, metrics.clone(), is_shared))
        .transpose()?;
    watch_health(&server, controllers.as_ref(), scheduler.as_ref());
    explain_scheduling(&server, scheduler.as_ref(), plan.proxy);
    let endpoints = server.registry.storage.is_shared.then(|| ServerEndpoints::start(&server));
    let manifests = plan.manifests.map(|data_dir| manifests::Manifests::start(&server, &data_dir, &metrics));
    // Nodes last: their controllers and the scheduler are running.
    let fake_nodes = (plan.fake_nodes > 0).then(|| start_fake_nodes(&server, plan.fake_nodes)).transpose()?;
    let agent = match plan.agent {
        Some(options) => Some(start_kubelet(&server, *options, progress).await?),
        None => None,
    };
    tracing::info!(%address, "serving");
    let _pod_address = pod_address.flatten();
    let lock = plan.lock;
    Ok(ControlPlane {
        server,
        address,
        task,
        loops,
        controllers,
        scheduler,
        endpoints,
        manifests,
        fake_nodes,
        agent,
        lock,
        _pod_address,
    })
}

/// Whether the store is of this cluster, and other servers of it are of a version that this one works with.
fn check_store(server: &Arc<Server>, cluster_ca: Option<&str>, is_shared: bool) -> Result<()> {
    if let Some(ca) = cluster_ca {
        server_endpoints::check_cluster(server, ca)?;
    }
    if is_shared {
        server_endpoints::check_versions(server)?;
    }
    Ok(())
}

impl ServerLoops {
    /// Starts the repairs, after which the server is ready, and what runs beside it.
    fn start(server: &Arc<Server>, metrics: client::Metrics, snapshots: Option<Snapshots>) -> ServerLoops {
        let environment = controllers::Environment { metrics, ..LocalClients::new(server).api_server_loops() };
        let controllers = controllers::start_of_server(environment);
        server.routes.health.set_done(Step::Repair);
        let storage = server.registry.storage.clone();
        let (store, clock) = (storage.store.clone(), server.config.clock.0.clone());
        let interval = server.config.compaction_interval;
        ServerLoops {
            controllers,
            usage: tokio::spawn(server::registry::usage::collect(server.registry.clone())),
            compaction: tokio::spawn(server::storage::compaction::run(storage, interval)),
            snapshots: snapshots.map(|snapshots| snapshots.start(store, clock)),
        }
    }

    async fn stop(self) {
        self.controllers.stop().await;
        self.usage.abort();
        self.compaction.abort();
        if let Some(snapshots) = &self.snapshots {
            snapshots.abort();
        }
    }
}

/// Lets clients request why a pod has no node, from this process's scheduler or that of another server.
fn explain_scheduling(server: &Arc<Server>, scheduler: Option<&SchedulerPart>, proxy: Option<ReadIdentity>) {
    let local = scheduler.map(SchedulerPart::explainer);
    let schedulers = Schedulers { server: Arc::downgrade(server), local, proxy };
    let _ = server.routes.scheduler.set(Arc::new(schedulers));
}

async fn start_kubelet(
    server: &Arc<Server>,
    options: node::options::Options,
    progress: &dyn Fn(&str),
) -> Result<node::start::KubeletHandle> {
    progress("node");
    let client = LocalClients::new(server).node(&options.config.node_name);
    let started = Box::pin(node::start::start(client, options)).await;
    started.map_err(Error::suggest_disable_agent)
}

/// Listens at the address for pods and advertises it, or the fallback if that fails.
async fn listen_for_pods(plan: &mut Plan, port: u16) -> Option<(Option<LoopbackAddress>, TcpListener)> {
    let PodFacingAddress { address, fallback, is_of_device, devices } = plan.pod_address.take()?;
    let at = SocketAddr::new(address, port);
    let listening = match is_of_device {
        true => listen(at, plan.port_hint).await.map(|listener| (None, listener)),
        false => pod_address::listen(at).await.map(|(added, listener)| (Some(added), listener)),
    };
    match listening {
        Ok(listening) => {
            plan.config.advertise_address = address;
            let accepts = move |local, peer| pod_address::accepts(&devices, address, local, peer);
            plan.config.accepts = server::request::accept::ConnectionFilter::new(accepts);
            Some(listening)
        }
        Err(error) => {
            tracing::warn!(
                error = error.describe(),
                "failed to listen on the pod address; pods cannot reach the API server through its Service"
            );
            plan.config.advertise_address = fallback;
            None
        }
    }
}

/// Reports the health of the components of this process to the server.
fn watch_health(server: &Server, controllers: Option<&ControllersPart>, scheduler: Option<&SchedulerPart>) {
    let controllers = controllers.map(ControllersPart::watch_health);
    let scheduler = scheduler.map(SchedulerPart::watch_health);
    let _ = server.registry.local_health.set(Box::new(move |name| match name {
        "scheduler" => scheduler.as_ref().map(|is_well| is_well()),
        "controller-manager" => controllers.as_ref().map(|is_well| is_well()),
        _ => None,
    }));
}

/// Serves the metrics of all loops of this process with those of the server.
fn show_metrics(server: &Server) -> client::Metrics {
    let metrics = client::Metrics::default();
    let shown = metrics.clone();
    server.metrics.show_also(Box::new(move || shown.render()));
    metrics
}

fn start_fake_nodes(server: &Arc<Server>, count: u32) -> Result<fakenode::FakeNodes> {
    let refused = |error: fakenode::StartError| Error::Flags(vec![format!("--fake-nodes: {error}")]);
    let running = fakenode::start(LocalClients::new(server).fake_nodes(), count).map_err(refused)?;
    let _ = server.registry.local_nodes.set(Box::new(FakeNodes { count, clock: server.config.clock.clone() }));
    Ok(running)
}

/// Serves requests to fake nodes in process, since no kubelet listens there.
struct FakeNodes {
    count: u32,
    clock: stdx::clock::SharedClock,
}

impl LocalNodes for FakeNodes {
    fn log(&self, pod: &api::Tree, container: &str, query: &api::query::Query) -> Option<Result<String, LogError>> {
        let number = fakenode::number(pod.str("spec.nodeName"))?;
        let log = || fakenode::log(pod, container, query, self.clock.now().seconds);
        (number < self.count).then(|| log().map_err(|error| LogError(error.to_string())))
    }
}

async fn listen(address: SocketAddr, hint: &'static str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse(address, hint),
        _ => Error::Listen { address, source },
    })
}

/// The server on its store, without a socket.
pub async fn open(engine: Engine, config: server::Config, auth: Authentication) -> Result<Arc<Server>> {
    let encryption = config.encryption.clone();
    let sealing =
        |store: Arc<dyn Store>| encryption.as_ref().map_or(store.clone(), |encryption| encryption.wrap(store));
    match engine {
        Engine::Embedded(dir) => {
            let caches = caches(&config, server::storage::resource::adopt_own);
            tracing::info!(dir = %dir.display(), "opening the embedded store");
            let files = store::embedded::Config { retention: config.history, ..store::embedded::Config::new(dir) };
            let store = store::embedded::open(files, Arc::new(store::disk::RealDisk), sink(&config, &caches, ""))?;
            Ok(Server::start(config, sealing(Arc::new(store)), caches, auth, false).await?)
        }
        Engine::Memory => {
            let caches = caches(&config, server::storage::resource::adopt_own);
            let store = store::memory::open_at(config.clock.0.clone(), sink(&config, &caches, ""))?;
            Ok(Server::start(config, sealing(Arc::new(store)), caches, auth, false).await?)
        }
        Engine::Etcd(etcd) => {
            let caches = caches(&config, server::storage::resource::adopt_foreign);
            tracing::info!(endpoints = ?etcd.endpoints, "connecting to etcd");
            let sink = sink(&config, &caches, &etcd.prefix);
            let store = store::etcd::connect(*etcd, sink).await?;
            Ok(Server::start(config, sealing(Arc::new(store)), caches, auth, true).await?)
        }
    }
}

/// Receives changes of the engine: the caches, behind decryption if it is configured.
fn sink(config: &server::Config, caches: &Arc<Caches>, outer_prefix: &str) -> Arc<dyn Sink> {
    match &config.encryption {
        None => caches.clone(),
        Some(encryption) => encryption.sink(caches.clone(), outer_prefix, &config.storage_prefix),
    }
}

fn caches(config: &server::Config, adopt: fn(&store::Entry) -> Option<bytes::Bytes>) -> Arc<Caches> {
    Arc::new(Caches::new(&config.storage_prefix, server::storage::resource::storage_paths(), adopt))
}
