//! Runs a proxy: watches the API, applies changes in batches, repairs rules, and confirms what is applied.

mod confirm;
mod machine;
mod open;
mod pending;
mod sync;

use std::net::SocketAddr;
use std::sync::Arc;

use client::{Client, Events, Informers, Metrics, Random, Reflector, Resource, Selection};
use stdx::clock::Clock;
use stdx::sync::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Configuration, Mode};
use crate::model::Family;
use crate::proxier::Proxier;
use crate::serve::health::Health;
use crate::serve::http::{Handler, Reply, Server};
use crate::serve::metrics;
use crate::serve::service_health::ServiceHealthServers;
use pending::{Pending, ServiceSink, SliceSink};

pub use open::{ProbeError, StartError, cleanup};

const SERVICES: Resource = Resource::core("services");
const NODES: Resource = Resource::core("nodes");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");
const SERVICE_CIDRS: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs");
/// Services of other proxies, and headless ones.
const SELECTOR: &str =
    "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name%2C%21service.kubernetes.io%2Fheadless";

/// The dependencies of a proxy.
pub struct Environment {
    /// A client that may read Services, EndpointSlices, ServiceCIDRs and the Node, and write events: the user
    /// `system:kube-proxy` may.
    pub client: Client,
    /// A client that may patch the Node, to confirm endpoints; the first one if there is none. A Node may patch itself.
    pub node_client: Option<Client>,
    /// The configuration.
    pub configuration: Configuration,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
}

/// A running proxy.
pub struct ProxyHandle {
    /// The mode that was chosen.
    pub mode: Mode,
    /// The families that are served.
    pub families: Vec<Family>,
    /// The address of the health server.
    pub healthz_address: Option<SocketAddr>,
    /// The address of the metrics server.
    pub metrics_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    synced: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl ProxyHandle {
    /// Waits until the first complete sync.
    pub async fn synced(&self) {
        // The sender exists as long as the task.
        let _ = self.synced_receiver().wait_for(|synced| *synced).await;
    }

    /// Becomes true with the first complete sync.
    pub fn synced_receiver(&self) -> watch::Receiver<bool> {
        self.synced.clone()
    }

    /// Stops. Unless the configuration requires a cleanup, rules stay, and no connection is interrupted.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the service proxy ended unexpectedly");
        }
    }

    /// Waits until it ends by itself, which is a failure.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
}

/// State that the tasks of a proxy share.
struct Shared {
    config: Configuration,
    mode: Mode,
    families: Vec<Family>,
    proxier: Mutex<Proxier>,
    pending: Arc<Pending>,
    health: Arc<Health>,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
}

/// Starts a proxy in the network namespace of the calling thread.
pub async fn start(environment: Environment) -> Result<ProxyHandle, StartError> {
    let Environment { client, node_client, configuration: config, metrics, clock } = environment;
    let (proxier, families) = open::open(&config)?;
    let mode = proxier.mode();
    machine::set_up(&config, mode);
    let health = Arc::new(Health::new(clock.clone(), &families));
    let shared = Arc::new(Shared {
        config,
        mode,
        families: families.clone(),
        proxier: Mutex::new(proxier),
        pending: Arc::new(Pending::default()),
        health,
        metrics,
        clock,
    });
    let (healthz, metrics_server) = (serve_health(&shared)?, serve_metrics(&shared)?);
    let (healthz_address, metrics_address) = (address(&healthz), address(&metrics_server));
    let (informers, reflectors) = (watch_node(&shared, &client), watch_services(&shared, &client));
    let events = Events::start(shared.clock.clone(), shared.metrics.clone());
    let recorder = events.recorder(client.clone(), "kube-proxy").on(&shared.config.node_name);
    let (stop, stopped) = watch::channel(false);
    let (synced_sender, synced) = watch::channel(false);
    let confirm = confirm::RevisionConfirmer::new(&shared, node_client.unwrap_or(client));
    let worker = sync::Worker {
        service_health: ServiceHealthServers::new(shared.health.clone(), &families),
        verify_period: shared.config.verify_period,
        shared,
        informers,
        reflectors,
        recorder,
        confirm,
        synced: synced_sender,
    };
    let task = tokio::spawn(async move {
        worker.run(stopped).await;
        drop((healthz, metrics_server));
    });
    Ok(ProxyHandle { mode, families, healthz_address, metrics_address, stop, synced, task })
}

fn address(server: &Option<Server>) -> Option<SocketAddr> {
    server.as_ref().map(|server| server.address)
}

/// Binds a port of the proxy; without the option for it, a port that is taken is only reported.
fn serve(
    config: &Configuration,
    what: &'static str,
    address: Option<SocketAddr>,
    handler: Handler,
) -> Result<Option<Server>, StartError> {
    let Some(address) = address else { return Ok(None) };
    match Server::bind(address, false, handler) {
        Ok(server) => Ok(Some(server)),
        Err(source) if config.bind_hard_fail => Err(StartError::Bind { what, address, source }),
        Err(error) => {
            tracing::error!(%error, %address, "failed to bind the port for {what}");
            Ok(None)
        }
    }
}

fn serve_health(shared: &Arc<Shared>) -> Result<Option<Server>, StartError> {
    let (health, counts) = (shared.health.clone(), shared.metrics.clone());
    let handler: Handler = Arc::new(move |path| {
        let (reply, metric) = match path {
            "/healthz" => (health.healthz(), &metrics::HEALTHZ),
            "/livez" => (health.livez(), &metrics::LIVEZ),
            _ => return Reply::not_found(),
        };
        counts.count(metric, &[if reply.code == 200 { "200" } else { "503" }]);
        reply
    });
    serve(&shared.config, "health", shared.config.healthz_address, handler)
}

fn serve_metrics(shared: &Arc<Shared>) -> Result<Option<Server>, StartError> {
    let weak = Arc::downgrade(shared);
    shared.metrics.on_collect([&metrics::NO_LOCAL_ENDPOINTS], move |all| {
        let Some(shared) = weak.upgrade() else { return };
        for family in &shared.families {
            let (internal, external) = shared.proxier.lock().without_local_endpoints(*family);
            all.record(&metrics::NO_LOCAL_ENDPOINTS, &["internal", family.name()], internal as f64);
            all.record(&metrics::NO_LOCAL_ENDPOINTS, &["external", family.name()], external as f64);
        }
    });
    let (all, mode) = (shared.metrics.clone(), shared.mode);
    let handler: Handler = Arc::new(move |path| match path {
        "/metrics" => Reply { content_type: "text/plain; version=0.0.4", ..Reply::text(200, all.render()) },
        "/proxyMode" => Reply::text(200, mode.name()),
        "/healthz" => Reply::text(200, "ok"),
        _ => Reply::not_found(),
    });
    serve(&shared.config, "metrics", shared.config.metrics_address, handler)
}

/// Starts informers whose changes go into the list of pending ones.
fn watch_node(shared: &Arc<Shared>, client: &Client) -> Informers {
    let informers = Informers::new(client.clone(), Arc::new(Random::seeded(Random::fresh_seed())));
    let node = format!("fieldSelector=metadata.name%3D{}", shared.config.node_name);
    let nodes = informers.informer(Selection::queried(NODES, &node));
    let cidrs = informers.informer(Selection::all(SERVICE_CIDRS));
    let sink = |take: fn(&Pending, &client::Change)| {
        let (pending, health) = (shared.pending.clone(), shared.health.clone());
        move |change: &client::Change| {
            take(&pending, change);
            health.queued();
        }
    };
    nodes.on_change(sink(Pending::node));
    cidrs.on_change(sink(Pending::service_cidr));
    informers.start();
    informers
}

/// Starts reflectors: of the many Services and slices only what the proxy needs is kept.
fn watch_services(shared: &Arc<Shared>, client: &Client) -> JoinSet<()> {
    let mut reflectors = JoinSet::new();
    let query = || SELECTOR.to_string();
    let services = Reflector::new(client.clone(), SERVICES, query(), ServiceSink(shared.clone()));
    let slices = Reflector::new(client.clone(), SLICES, query(), SliceSink(shared.clone()));
    reflectors.spawn(services.run());
    reflectors.spawn(slices.run());
    reflectors
}
