//! The API server: the request path from the socket to the store. It knows no controller, and it alone
//! talks to the store.

pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod bootstrap;
pub mod call;
pub mod common;
pub mod fairness;
pub mod filters;
pub mod http;
pub mod metrics;
pub mod outbound;
pub mod registry;
pub mod request;
pub mod routes;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod tls;

pub use bootstrap::hostname;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::Tree;
use api::status::{Cause, Status};
use bytes::Bytes;
use common::clock;
use filters::cors;
use outbound::{kubelets, local_nodes};
use registry::{admission, alloc, initializers, subresources, write};
use request::{accept, limits};
use routes::{discovery, health, openapi, why};
use storage::cache::{self, Caches, Item};
use storage::encryption;
use storage::resource::{self, Registry, Resource};
use store::Store;
use tokio::sync::watch;

/// What the server is told at its start.
#[derive(Debug, Clone)]
pub struct Config {
    pub event_ttl: Duration,
    /// `10.96.0.0/16`, and one of the other family for dual stack.
    pub service_cidrs: Vec<(IpAddr, u8)>,
    pub node_ports: std::ops::RangeInclusive<u16>,
    /// Where clients reach the server: goes into the `kubernetes` service's endpoints.
    pub advertise_address: IpAddr,
    /// Whether the endpoints of the `kubernetes` service are this server's to write.
    pub publishes_endpoints: bool,
    pub port: u16,
    pub storage_prefix: String,
    /// How often the store is compacted to what it was an interval before; zero for never.
    pub compaction_interval: Duration,
    /// Who stands in service account tokens: the first in those that are made, any in those that are taken.
    pub issuers: Vec<String>,
    pub cors: cors::Cors,
    /// What answers say of HTTPS to browsers, if anything.
    pub strict_transport_security: Option<::http::HeaderValue>,
    /// Who decides what callers may do, in this order.
    pub authorization: Vec<authorization::config::Setting>,
    /// Which admission plugins are on, and what they were told.
    pub admission: Arc<admission::Setup>,
    pub limits: limits::Limits,
    pub audit: Option<Arc<audit::Audit>>,
    pub encryption: Option<Arc<encryption::Encryption>>,
    pub clock: clock::WallClock,
    /// None where the server has nothing to show to the agents of nodes: any of them is taken, as upstream's.
    pub kubelets: Option<Arc<kubelets::Kubelets>>,
    pub accepts: accept::Accepts,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            event_ttl: Duration::from_secs(3600),
            service_cidrs: vec![(IpAddr::from([10, 96, 0, 0]), 16)],
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
            clock: clock::WallClock::default(),
            kubelets: None,
            accepts: accept::Accepts::default(),
        }
    }
}

impl Config {
    /// Who makes tokens here.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }
}

pub struct Server {
    pub config: Config,
    pub store: Arc<dyn Store>,
    pub caches: Arc<Caches>,
    decoded: cache::Decoded,
    pub registry: Registry,
    pub auth: authentication::Authentication,
    pub authz: authorization::Union,
    /// The roles, whoever decides: nobody grants what they do not hold by them.
    rbac: Arc<authorization::rbac::Rbac>,
    pub metrics: metrics::Metrics,
    pub fairness: fairness::Fairness,
    pub health: health::Health,
    /// Who is asked why a pod waits.
    pub scheduler: OnceLock<Arc<dyn why::Explains>>,
    /// Nodes of this process, which have no kubelet to be asked.
    pub local_nodes: OnceLock<Box<dyn local_nodes::LocalNodes>>,
    /// How the other components are that run in this process.
    pub local_health: OnceLock<subresources::component_status::LocalHealth>,
    /// True once the server drains: watches end, new requests are told to go elsewhere.
    pub closing: watch::Sender<bool>,
    alloc: alloc::Allocator,
    pub admission: Arc<admission::Setup>,
    webhooks: admission::webhook::Compiled,
    admitted: admission::metrics::AdmissionMetrics,
    turns: admission::resource_quota::Turns,
    discovery: discovery::Documents,
    openapi: openapi::Documents,
    adopt: fn(&store::Entry) -> Option<Bytes>,
    /// True where others write to the store too: reads then ask it first.
    shared_store: bool,
}

/// How long a request waits for a revision that has not been seen yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

impl Server {
    /// Takes an open store whose sink is `caches`, and fills the caches from it.
    pub async fn start(
        config: Config,
        store: Arc<dyn Store>,
        caches: Arc<Caches>,
        auth: authentication::Authentication,
        shared_store: bool,
    ) -> Result<Arc<Server>, store::Error> {
        let (entries, revision) = store.load().await?;
        refuse_sealed(&entries, &config)?;
        caches.load(entries, revision);
        let registry = Registry::new(&config.storage_prefix, &caches);
        let rbac = Arc::new(authorization::rbac::Rbac::new(&caches));
        let metrics = metrics::Metrics::new();
        if let Some(audit) = &config.audit {
            audit.start(metrics.registry());
        }
        if let Some(encryption) = &config.encryption {
            encryption.measure(metrics.registry(), &config.clock);
        }
        let started = config.clock.seconds();
        let server = Arc::new(Server {
            admission: config.admission.clone(),
            webhooks: Default::default(),
            admitted: admission::metrics::AdmissionMetrics::new(metrics.registry(), &config.admission),
            turns: Default::default(),
            alloc: alloc::Allocator::new(&config),
            discovery: discovery::Documents::new(&registry),
            openapi: openapi::Documents::default(),
            authz: authorization::Union::new(&config.authorization, &caches, &rbac),
            rbac,
            config,
            store,
            caches: caches.clone(),
            decoded: cache::Decoded::default(),
            registry,
            auth,
            fairness: fairness::Fairness::new(&metrics),
            metrics,
            health: health::Health::new(started),
            scheduler: OnceLock::new(),
            local_nodes: OnceLock::new(),
            local_health: OnceLock::new(),
            closing: watch::Sender::new(false),
            adopt: if shared_store { resource::adopt_foreign } else { resource::adopt_own },
            shared_store,
        });
        for (_, cache) in caches.all() {
            tokio::spawn(cache.clone().wake_watchers());
        }
        tokio::spawn(end_watches(server.closing.subscribe(), caches));
        server.fairness.reload(&server);
        tokio::spawn(fairness::follow(server.clone()));
        Ok(server)
    }

    /// Other authorizers decide from now on.
    pub fn set_authorization(&self, settings: &[authorization::config::Setting]) {
        self.authz.replace(settings, &self.caches, &self.rbac);
    }

    /// Seconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.config.clock.seconds()
    }

    /// A stored value in the form in which it is served.
    fn adopt(&self, entry: &store::Entry) -> Option<Bytes> {
        (self.adopt)(entry)
    }

    /// An object from the cache by storage path and key, for parts of the server that look things up.
    pub fn object(&self, storage: &str, key: &str) -> Option<Arc<Tree>> {
        Some(self.decoded.tree(&self.item(storage, key)?)).filter(|object| initializers::is_seen(object))
    }

    /// The same as it is kept, whether it is to be seen or not.
    pub fn item(&self, storage: &str, key: &str) -> Option<Arc<Item>> {
        self.caches.get(storage)?.get(key)
    }

    /// All objects of a storage path from the cache, or those of one namespace, in the order of their keys.
    pub fn objects(&self, storage: &str, namespace: &str) -> Vec<Tree> {
        let Some(cache) = self.caches.get(storage) else { return Vec::new() };
        cache.items_in(namespace).iter().map(|item| item.tree()).filter(initializers::is_seen).collect()
    }

    /// The newest state of an object. Our own store publishes before it answers, so the cache is it.
    async fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Arc<Item>>, Status> {
        if self.shared_store {
            return self.read_stored(resource, namespace, name).await;
        }
        Ok(resource.cache()?.get(&resource.key(namespace, name)))
    }

    /// The object as the store has it.
    async fn read_stored(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Arc<Item>>, Status> {
        if !self.shared_store {
            return Ok(resource.cache()?.get(&resource.key(namespace, name)));
        }
        let key = resource.store_key(namespace, name);
        let entry = self.store.get(&key).await.map_err(write::store_status)?;
        let Some(entry) = entry else { return Ok(None) };
        let bytes = self.adopt(&entry).ok_or_else(|| Status::internal(format!("{key} cannot be read")))?;
        Ok(Some(Arc::new(Item::new(&resource.key(namespace, name), entry.revision, bytes))))
    }

    /// Waits until the caches are as new as the store was when asked.
    async fn catch_up(&self) -> Result<(), Status> {
        if !self.shared_store {
            return Ok(());
        }
        let revision = self.store.revision().await.map_err(write::store_status)?;
        self.wait_for_revision(revision).await
    }

    async fn wait_for_version(&self, version: &str) -> Result<(), Status> {
        if version.is_empty() {
            return Ok(());
        }
        let revision: u64 = version.parse().map_err(|_| Status::new(500, "", bad_version(version)))?;
        self.wait_for_revision(revision).await
    }

    async fn wait_for_list_version(&self, version: &str) -> Result<(), Status> {
        if version.is_empty() {
            return Ok(());
        }
        let bad = |_| Status::bad_request(format!("invalid resource version: {}", bad_version(version)));
        let revision: u64 = version.parse().map_err(bad)?;
        self.wait_for_revision(revision).await
    }

    async fn wait_for_revision(&self, revision: u64) -> Result<(), Status> {
        if self.caches.revision() >= revision {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + VERSION_WAIT;
        if self.caches.until(deadline, || self.caches.revision() >= revision).await {
            return Ok(());
        }
        Err(too_large_version(revision, self.caches.revision()))
    }
}

/// Sealed values without a configuration would look as if they were not there.
fn refuse_sealed(entries: &[Arc<store::Entry>], config: &Config) -> Result<(), store::Error> {
    let sealed = entries.iter().find(|entry| encryption::is_sealed(&entry.value));
    match sealed.filter(|_| config.encryption.is_none()) {
        None => Ok(()),
        Some(entry) => Err(store::Error::Unavailable(format!(
            "{} is encrypted, and no --encryption-provider-config is given",
            entry.key
        ))),
    }
}

/// Watchers sleep until they are woken: once the server closes, all of them are.
async fn end_watches(mut closing: watch::Receiver<bool>, caches: Arc<Caches>) {
    if closing.wait_for(|closing| *closing).await.is_ok() {
        caches.all().for_each(|(_, cache)| cache.wake_all());
    }
}

fn bad_version(version: &str) -> String {
    let digits = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let why = if digits { "value out of range" } else { "invalid syntax" };
    format!("resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: {why}")
}

fn too_large_version(asked: u64, current: u64) -> Status {
    let mut status = Status::timeout(format!("Too large resource version: {asked}, current: {current}"), 1);
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause {
            reason: "ResourceVersionTooLarge".to_string(),
            message: "Too large resource version".to_string(),
            field: String::new(),
        }];
    }
    status
}
