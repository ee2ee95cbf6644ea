//! API aggregation: group versions that extension API servers behind Services serve. APIServices name them; requests
//! for their paths are proxied with the identity of the client in headers, which the extension API server trusts
//! because of the proxy's client certificate.

pub mod availability;
mod backends;
mod discovery_cache;
mod openapi;
pub(crate) mod priorities;
mod proxy;
mod services;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use http_client::Identity;
use kinds::User;
use stdx::sync::Mutex;

use crate::outbound::callout::Client;
use crate::outbound::tunnels::Dialer;
use crate::outbound::user_headers::TrustedHeaders;
use crate::storage::Storage;
use crate::storage::cache::View;

use backends::{Backend, Backends};
use discovery_cache::DiscoveryCache;
use openapi::{ExtensionDocuments, OpenApi};
pub(crate) use proxy::forward;
pub(crate) use services::ApiService;
use services::ApiServices;
use target::TargetError;

/// The group of APIServices: always served by this server, since an invalid APIService must stay repairable.
const OWN_GROUP: &str = "apiregistration.k8s.io";
/// How long a client certificate is used before its files are read again.
const IDENTITY_AGE: Duration = Duration::from_secs(60);

/// Reads the client certificate of the proxy.
pub type ReadIdentity = Arc<dyn Fn() -> Result<Identity, IdentityError> + Send + Sync>;

/// Why the client certificate is missing.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the proxy client certificate")]
pub struct IdentityError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// The flags of aggregation.
#[derive(Clone, Default)]
pub struct Config {
    /// The client certificate for extension API servers; None without one.
    pub identity: Option<ReadIdentity>,
    /// Whether requests go to endpoints of a Service instead of its cluster IP.
    pub routes_to_endpoints: bool,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("routes_to_endpoints", &self.routes_to_endpoints).finish_non_exhaustive()
    }
}

/// The extension API servers of a cluster.
pub(crate) struct Aggregator {
    config: Config,
    storage: Arc<Storage>,
    dialer: Arc<Dialer>,
    /// The headers that name users to this server; extension API servers believe the same.
    trusted_headers: TrustedHeaders,
    services: View<ApiServices>,
    identity: Mutex<Option<(Instant, Arc<Identity>)>>,
    backends: Backends,
    discovered: DiscoveryCache,
    openapi: OpenApi,
}

impl Aggregator {
    pub(crate) fn new(config: Config, dialer: Arc<Dialer>, trusted_headers: TrustedHeaders) -> Aggregator {
        let storage = dialer.storage.clone();
        let services = View::new(storage.caches.get(services::STORAGE));
        Aggregator {
            config,
            storage,
            dialer,
            trusted_headers,
            services,
            identity: Mutex::default(),
            backends: Backends::default(),
            discovered: DiscoveryCache::default(),
            openapi: OpenApi::default(),
        }
    }

    /// The extension API server of a group version.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Arc<ApiService>> {
        self.services.read(|services| services.find(group, version))
    }

    /// All extension API servers.
    pub(crate) fn all(&self) -> Vec<Arc<ApiService>> {
        self.services.read(ApiServices::all)
    }

    /// The resources that an extension API server has reported, as an APIResourceList.
    pub(crate) fn resources(&self, service: &ApiService) -> Option<Arc<Tree>> {
        self.discovered.get(&service.name)
    }

    /// The OpenAPI documents of an extension API server.
    pub(crate) fn documents(&self, service: &ApiService) -> ExtensionDocuments {
        self.openapi.get(&service.name)
    }

    /// Changes whenever an extension API server or what it reports does.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.services.read(ApiServices::changes), self.discovered.changes())
    }

    /// The client for an extension API server, which verifies its certificate for the name of its Service.
    fn client(&self, service: &ApiService) -> Result<Client, TargetError> {
        let client = Client::new(&service.trust()?, self.identity()?.as_deref())?;
        Ok(client.with_server_name(Some(service.server_name())).with_dialer(self.dialer.clone()))
    }

    /// The kept connections to an extension API server.
    fn backend(&self, service: &Arc<ApiService>) -> Result<Arc<Backend>, TargetError> {
        self.backends.get(service, self.identity()?)
    }

    fn identity(&self) -> Result<Option<Arc<Identity>>, TargetError> {
        let Some(read) = &self.config.identity else { return Ok(None) };
        let mut kept = self.identity.lock();
        if let Some((_, identity)) = kept.as_ref().filter(|(since, _)| since.elapsed() < IDENTITY_AGE) {
            return Ok(Some(identity.clone()));
        }
        let mut identity = Arc::new(read()?);
        // Kept connections belong to an identity: the same one stays.
        if let Some((_, known)) = kept.as_ref().filter(|(_, known)| known.has_same_certificate(&identity)) {
            identity = known.clone();
        }
        *kept = Some((Instant::now(), identity.clone()));
        Ok(Some(identity))
    }
}

/// The user under which this server requests the discovery documents of extension API servers.
fn aggregator_user() -> User {
    User {
        name: "system:kube-aggregator".to_string(),
        groups: vec![crate::common::users::MASTERS.to_string()],
        ..User::default()
    }
}
