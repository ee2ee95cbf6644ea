//! The server: sockets, configuration that is reloaded, health and metrics. Several servers can run in one process.

mod config_map;
mod files;
mod guard;
mod handler;
mod http;
mod limits;
mod listeners;
mod reload;
mod tcp;
mod udp;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use client::Client;
use stdx::clock::Clock;
use stdx::sync::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::chain::Program;
use crate::corefile::CorefileError;
use crate::directory::Directory;
use crate::metrics::Metrics;
pub use limits::Limits;
use limits::Sources;
use listeners::Listeners;

/// The source of the Corefile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorefileSource {
    /// A constant text.
    Text(String),
    /// A file, which is reloaded when it changes.
    File(PathBuf),
    /// The key `Corefile` of a ConfigMap, which is watched; the text is used while there is none.
    ConfigMap { namespace: String, name: String, otherwise: String },
}

/// The addresses for queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// On the ports of the server blocks, at their `bind` addresses or at all addresses.
    Corefile,
    /// At these addresses, instead of the default port of the Corefile. Other ports of the Corefile are opened beside them.
    At(Vec<SocketAddr>),
}

/// The addresses of health, readiness and metrics over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpEndpoints {
    /// At the addresses of the plugins `health`, `ready` and `prometheus`.
    Corefile,
    /// At the ports of these plugins, but at this address.
    At(IpAddr),
    /// Nowhere: the process shows them by [`DnsHandle`].
    Disabled,
}

/// The configuration of a server.
#[derive(Clone)]
pub struct Config {
    /// The source of the Corefile.
    pub corefile: CorefileSource,
    /// The port of zones that name none: 53, unless the user chose another one.
    pub default_port: u16,
    /// The addresses for queries.
    pub listen: Listen,
    /// The addresses of health, readiness and metrics.
    pub http: HttpEndpoints,
    /// The node whose pods use this server; only these are watched for `autopath`. None: the pods of all nodes.
    pub node_name: Option<String>,
    /// The resolv.conf of the node, whose search domains follow those of the cluster in the pods.
    pub resolv_conf: PathBuf,
    /// The limits of each client.
    pub limits: Limits,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Access to the API.
#[derive(Clone)]
pub struct Cluster {
    /// Watches the objects and reads the ConfigMap.
    pub client: Client,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The Corefile is invalid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Corefile(Vec<CorefileError>),
    /// A file could not be read.
    #[error("failed to read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An address could not be bound.
    #[error("failed to listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// The Corefile is in a ConfigMap, but there is no API server.
    #[error("the Corefile is in a ConfigMap, which needs an API server")]
    NoCluster,
}

/// State that all parts of a server share.
pub(crate) struct Shared {
    config: Config,
    cluster: Option<Cluster>,
    program: ArcSwap<Program>,
    metrics: Arc<Metrics>,
    sources: Sources,
    guard: Arc<guard::FloodGuard>,
    directories: Mutex<Vec<Arc<Directory>>>,
    listeners: Listeners,
    is_stopping: AtomicBool,
    /// The files that the program was compiled from.
    files: Mutex<files::Snapshot>,
    /// Why the last Corefile is not in force.
    rejected: Mutex<Vec<CorefileError>>,
    stop: watch::Sender<bool>,
}

/// A running server. It stops when it is dropped.
pub struct DnsHandle {
    shared: Arc<Shared>,
    follow: JoinHandle<()>,
}

/// The cluster DNS.
pub struct Server;

impl Server {
    /// Starts a server; it answers as soon as this returns. Names of the cluster fail until they are known.
    pub async fn start(config: Config, cluster: Option<Cluster>) -> Result<DnsHandle, StartError> {
        let text = reload::first_text(&config, cluster.as_ref()).await?;
        let corefile = reload::parse(&text, config.default_port).map_err(StartError::Corefile)?;
        let metrics = Arc::new(Metrics::default());
        let shared = Arc::new(Shared {
            sources: Sources::new(config.limits, metrics.clone()),
            config,
            cluster,
            guard: Arc::default(),
            program: ArcSwap::from_pointee(reload::empty()),
            metrics,
            directories: Mutex::default(),
            listeners: Listeners::default(),
            is_stopping: AtomicBool::new(false),
            files: Mutex::default(),
            rejected: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        reload::apply(&shared, corefile).await?;
        let follow = tokio::spawn(reload::follow(shared.clone(), text));
        Ok(DnsHandle { shared, follow })
    }
}

impl DnsHandle {
    /// The addresses where queries are received.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.listeners.addresses()
    }

    /// The addresses of health, readiness and metrics.
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.shared.listeners.http_addresses()
    }

    /// Metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.shared.metrics.render()
    }

    /// Whether all names of the cluster are known, and the server is not about to stop.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Whether an upstream forwards to this server.
    pub fn has_loop(&self) -> bool {
        self.shared.program.load().has_loop()
    }

    /// Why the newest Corefile is not in force; empty if it is.
    pub fn rejected(&self) -> Vec<CorefileError> {
        self.shared.rejected.lock().clone()
    }

    /// Keeps answering for the `lameduck` duration of the plugin `health`, and is not ready meanwhile.
    pub async fn drain(&self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        let program = self.shared.program.load_full();
        let lameduck = program.corefile.blocks.iter().filter_map(|block| block.health.as_ref());
        tokio::time::sleep(lameduck.map(|health| health.lameduck).max().unwrap_or(Duration::ZERO)).await;
    }

    /// Closes all sockets.
    pub async fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.shared.stop.send_replace(true);
        self.shared.listeners.close().await;
    }
}

impl Drop for DnsHandle {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        self.follow.abort();
        self.shared.listeners.abort();
    }
}

impl Shared {
    fn is_ready(&self) -> bool {
        !self.is_stopping.load(Ordering::Relaxed) && self.program.load().is_synced()
    }
}
