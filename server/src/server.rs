//! The whole server: its configuration, and the state that requests share.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use store::Store;
use tokio::sync::watch;

use crate::aggregation::{self, Aggregator};
use crate::audit;
use crate::authentication::{Authentication, Authenticator};
use crate::authorization;
use crate::fairness::{self, Fairness};
use crate::metrics::Metrics;
use crate::outbound::kubelets;
use crate::registry::{self, Registry, admission};
use crate::request::{accept, cors, limits};
use crate::routes::Routes;
use crate::storage::cache::Caches;
use crate::storage::{Storage, encryption};
use stdx::cidr::IpNet;
use stdx::clock::SharedClock;

/// The configuration of the server.
#[derive(Debug, Clone)]
pub struct Config {
    pub event_ttl: Duration,
    /// `10.96.0.0/16`, and a range of the other family for dual stack.
    pub service_cidrs: Vec<IpNet>,
    pub node_ports: std::ops::RangeInclusive<u16>,
    /// The address at which clients reach the server, for the endpoints of the `kubernetes` service.
    pub advertise_address: IpAddr,
    /// Whether this server writes the endpoints of the `kubernetes` service.
    pub publishes_endpoints: bool,
    pub port: u16,
    pub storage_prefix: String,
    /// How often the store is compacted to what it was an interval before; zero for never.
    pub compaction_interval: Duration,
    /// The issuers of service account tokens: the first signs, all are accepted.
    pub issuers: Vec<String>,
    pub cors: cors::Cors,
    /// The Strict-Transport-Security header of responses, if any.
    pub strict_transport_security: Option<http::HeaderValue>,
    /// The authorizers, in their order.
    pub authorization: Vec<authorization::config::Setting>,
    /// The enabled admission plugins and their configuration.
    pub admission: Arc<admission::Setup>,
    pub limits: limits::Limits,
    pub audit: Option<Arc<audit::Audit>>,
    pub encryption: Option<Arc<encryption::Encryption>>,
    pub clock: SharedClock,
    /// Whether each write is stored with its cause.
    pub records_causes: bool,
    /// How much of the past the store keeps.
    pub history: store::embedded::Retention,
    /// None if the server has no client certificate for kubelets: any kubelet is then accepted, as upstream does.
    pub kubelets: Option<Arc<kubelets::Kubelets>>,
    pub accepts: accept::ConnectionFilter,
    pub aggregation: aggregation::Config,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            event_ttl: Duration::from_secs(3600),
            service_cidrs: IpNet::new(IpAddr::from([10, 96, 0, 0]), 16).into_iter().collect(),
            node_ports: 30000..=32767,
            advertise_address: IpAddr::from([127, 0, 0, 1]),
            publishes_endpoints: true,
            port: 6443,
            storage_prefix: "/registry".to_string(),
            compaction_interval: Duration::from_secs(300),
            issuers: vec!["https://kubernetes.default.svc".to_string()],
            cors: cors::Cors::default(),
            strict_transport_security: None,
            authorization: authorization::config::node_and_rbac(),
            admission: Arc::default(),
            limits: limits::Limits::default(),
            audit: None,
            encryption: None,
            clock: SharedClock::default(),
            records_causes: true,
            history: store::embedded::Retention::default(),
            kubelets: None,
            accepts: accept::ConnectionFilter::default(),
            aggregation: aggregation::Config::default(),
        }
    }
}

impl Config {
    /// The part that verbs and subresources use.
    fn registry(&self) -> registry::Config {
        registry::Config {
            event_ttl: self.event_ttl,
            service_cidrs: self.service_cidrs.clone(),
            node_ports: self.node_ports.clone(),
            advertise_address: self.advertise_address,
            port: self.port,
            issuers: self.issuers.clone(),
            min_request_timeout: self.limits.min_request_timeout,
            encryption: self.encryption.clone(),
            clock: self.clock.clone(),
            records_causes: self.records_causes,
            kubelets: self.kubelets.clone(),
        }
    }
}

/// The state that all requests share.
pub struct Server {
    pub config: Config,
    pub registry: Arc<Registry>,
    pub routes: Routes,
    pub metrics: Arc<Metrics>,
    pub fairness: Arc<Fairness>,
    /// True once the server drains: watches end, new requests are rejected.
    pub closing: watch::Sender<bool>,
}

impl Server {
    /// Takes an open store whose sink is `caches`, and fills the caches from it.
    pub async fn start(
        config: Config,
        store: Arc<dyn Store>,
        caches: Arc<Caches>,
        authentication: Authentication,
        shared_store: bool,
    ) -> Result<Arc<Server>, store::Error> {
        let encrypted = config.encryption.is_some();
        let storage = Storage::open(&config.storage_prefix, store, caches, shared_store, encrypted).await?;
        let server = Arc::new(Server::new(config, Arc::new(storage), authentication));
        server.spawn_tasks();
        Ok(server)
    }

    fn new(config: Config, storage: Arc<Storage>, authentication: Authentication) -> Server {
        let metrics = Arc::new(Metrics::new());
        if let Some(audit) = &config.audit {
            audit.start(metrics.registry());
        }
        if let Some(encryption) = &config.encryption {
            encryption.measure(metrics.registry(), &config.clock);
        }
        let closing = watch::Sender::new(false);
        let fairness = Arc::new(Fairness::new(&metrics));
        let issuers = config.issuers.clone();
        let registry = Arc::new(Registry::new(
            config.registry(),
            storage.clone(),
            Authenticator::new(authentication, storage, metrics.clone(), issuers),
            &config.authorization,
            (config.admission.clone(), metrics.registry()),
            closing.clone(),
        ));
        let proxies = registry.authentication.config.request_header.as_ref();
        let trusted = proxies.map(|proxies| proxies.names.trusted_headers()).unwrap_or_default();
        let aggregator = Aggregator::new(config.aggregation.clone(), registry.dialer.clone(), trusted);
        let fair = (fairness.clone(), config.limits.fairness);
        let routes = Routes::new(registry.clone(), aggregator, metrics.clone(), fair);
        Server { config, registry, routes, metrics, fairness, closing }
    }

    fn spawn_tasks(&self) {
        let storage = &self.registry.storage;
        for (_, cache) in storage.caches.all() {
            tokio::spawn(cache.clone().wake_watchers());
        }
        tokio::spawn(end_watches(self.closing.subscribe(), storage.caches.clone()));
        self.fairness.reload(storage, &self.config.limits);
        let limits = self.config.limits.clone();
        let closing = self.closing.subscribe();
        tokio::spawn(fairness::follow(self.fairness.clone(), storage.clone(), limits, closing));
    }

    /// Replaces the authorizers.
    pub fn set_authorization(&self, settings: &[authorization::config::Setting]) {
        self.registry.set_authorization(settings);
    }

    /// Seconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.config.clock.now().seconds
    }

    /// All objects of a storage path from the cache, or those of one namespace, in the order of their keys.
    pub fn objects(&self, storage: &str, namespace: &str) -> Vec<Tree> {
        self.registry.storage.objects(storage, namespace)
    }
}

/// Wakes all watchers once the server closes.
async fn end_watches(mut closing: watch::Receiver<bool>, caches: Arc<Caches>) {
    if closing.wait_for(|closing| *closing).await.is_ok() {
        caches.wake_all();
    }
}
