//! For tests: a whole API server in one call, on any engine, with an HTTPS client. All access goes through the API.

#![warn(unreachable_pub)]

pub mod client;
mod etcd;
mod flagged;
mod hook;
mod https;
pub mod sim;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cluster::control_plane::{ControlPlane, Controllers, Engine, Plan, start};
use cluster::pki::cluster::ClusterPki;
use cluster::pki::credentials;
use cluster::pki::{CertificateAndKey, Pki};
use cluster::up;

pub use client::{Client, Reply, Watch};
pub use etcd::Etcd;
pub use flagged::FlaggedServer;
pub use hook::{Hook, HookResponse};
pub use https::{ConnectionNumber, Https, plain};

/// The storage of the server under test.
pub enum Storage {
    Embedded,
    Etcd,
}

/// A running server with its own directory; both are removed when it is stopped or dropped.
pub struct Cluster {
    pub client: Client,
    running: Option<ControlPlane>,
    dir: tempfile::TempDir,
    pub etcd: Option<Etcd>,
    config: server::Config,
}

impl Cluster {
    /// Starts an API server on a storage engine.
    pub async fn start(kept: Storage) -> Cluster {
        Cluster::start_with(kept, server::Config::default(), async |_| {}).await
    }

    /// Starts with another configuration; `before` may fill an etcd that the server then finds.
    pub async fn start_with(kept: Storage, config: server::Config, before: impl AsyncFnOnce(&Etcd)) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let etcd = match kept {
            Storage::Embedded => None,
            Storage::Etcd => Some(Etcd::start(&dir.path().join("etcd")).await),
        };
        if let Some(etcd) = &etcd {
            before(etcd).await;
        }
        let (running, client) = boot(dir.path(), etcd.as_ref(), config.clone()).await;
        Cluster { client, running: Some(running), dir, etcd, config }
    }

    /// Starts on the embedded store with a plan that the test has changed.
    pub async fn start_changed(change: impl FnOnce(&mut Plan, &Pki)) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = server::Config::default();
        let (running, client) = try_boot(dir.path(), None, config.clone(), change).await.expect("the server starts");
        Cluster { client, running: Some(running), dir, etcd: None, config }
    }

    /// The same with the controllers at work.
    pub async fn start_whole() -> Cluster {
        Cluster::start_whole_with(|_| {}).await
    }

    /// Their options as the test has changed them.
    pub async fn start_whole_with(change: impl FnOnce(&mut controllers::Options)) -> Cluster {
        Cluster::start_everything(0, change).await
    }

    /// The controllers, and nodes that run nothing.
    pub async fn start_with_nodes(nodes: u32) -> Cluster {
        Cluster::start_everything(nodes, |_| {}).await
    }

    async fn start_everything(nodes: u32, change: impl FnOnce(&mut controllers::Options)) -> Cluster {
        Cluster::start_changed(|plan, pki| {
            plan.fake_nodes = nodes;
            plan.scheduler = (nodes > 0).then(scheduler::config::Configuration::default);
            plan.config.admission = up::admission().expect("plugins");
            let own = ClusterPki::new(pki.clone(), IpAddr::from([127, 0, 0, 1]), &plan.config, &[]).expect("names");
            let mut options = own.controller_options(&plan.config).expect("options");
            change(Arc::make_mut(&mut options));
            plan.controllers =
                Some(Controllers { chosen: up::CONTROLLERS.split(',').map(str::to_string).collect(), options });
        })
        .await
    }

    /// The directory of the server's certificates, in which tests can create more.
    pub fn pki(&self) -> Pki {
        Pki::open(self.dir.path().join("pki")).expect("a directory")
    }

    /// The server in this process.
    pub fn server(&self) -> &Arc<server::Server> {
        &self.running.as_ref().expect("it runs").server
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").address
    }

    /// A client with another certificate, or with none.
    pub fn client_as(&self, user: Option<&CertificateAndKey>) -> Client {
        let ca = self.pki().read("ca").expect("a CA bundle").expect("a CA bundle");
        Client::as_user(self.address(), &ca, user)
    }

    /// The directory of the server's files.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Stops the server and starts another on the same store, with another configuration.
    pub async fn restart_with(&mut self, config: server::Config) {
        self.config = config;
        self.restart().await;
    }

    /// Stops the server and starts another on the same store.
    pub async fn restart(&mut self) {
        self.stop().await;
        let (running, client) = boot(self.dir.path(), self.etcd.as_ref(), self.config.clone()).await;
        self.running = Some(running);
        self.client = client;
    }

    /// Stops the server and tries to start another on the same store; why that fails.
    pub async fn restart_refused(&mut self, config: server::Config) -> String {
        self.stop().await;
        let result = try_boot(self.dir.path(), self.etcd.as_ref(), config, |_, _| {}).await;
        result.err().expect("the server does not start").describe()
    }

    /// Stops the server.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}

async fn boot(dir: &std::path::Path, etcd: Option<&Etcd>, config: server::Config) -> (ControlPlane, Client) {
    try_boot(dir, etcd, config, |_, _| {}).await.expect("the server starts")
}

async fn try_boot(
    dir: &std::path::Path,
    etcd: Option<&Etcd>,
    mut config: server::Config,
    change: impl FnOnce(&mut Plan, &Pki),
) -> cluster::error::Result<(ControlPlane, Client)> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let pki = Pki::open(dir.join("pki")).expect("a directory");
    let own = ClusterPki::new(pki, loopback, &config, &[]).expect("names");
    let current = own.load().expect("certificates");
    let tokens = own.tokens().expect("a key");
    let engine = match etcd {
        None => Engine::Embedded(dir.join("store")),
        Some(etcd) => Engine::Etcd(Box::new(etcd_config(etcd, &mut config))),
    };
    let addresses = ["InternalIP".to_string()];
    config.kubelets = Some(credentials::kubelets(&current, &addresses, std::time::Duration::from_secs(5))?);
    let mut plan = Plan {
        engine,
        listen: SocketAddr::new(loopback, 0),
        port_hint: "",
        pod_address: None,
        serving: credentials::serving(&current).expect("a certificate"),
        tls: Default::default(),
        authentication: up::authentication(&current, tokens, &config).expect("authenticators"),
        config,
        controllers: None,
        scheduler: None,
        cluster_ca: None,
        proxy: Some(own.proxy()),
        manifests: None,
        fake_nodes: 0,
        agent: None,
        lock: None,
        snapshots: None,
    };
    plan.config.aggregation.identity = plan.proxy.clone();
    change(&mut plan, &own.pki);
    let running = Box::pin(start(plan, &|_| {})).await?;
    let (ca, admin) = current.admin.expect("an administrator");
    let client = Client::new(running.address, &ca, &admin);
    Ok((running, client))
}

/// As `kube-apiserver` has it: the prefix is that of etcd's keys, and causes are kept beside them.
fn etcd_config(etcd: &Etcd, config: &mut server::Config) -> store::etcd::Config {
    let prefix = std::mem::take(&mut config.storage_prefix);
    let causes = config.history.is_on().then_some(config.history.age);
    store::etcd::Config { prefix, causes, ..store::etcd::Config::new(vec![etcd.endpoint()]) }
}
