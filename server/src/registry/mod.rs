//! The verbs and the one write path of all resources: admission, validation, allocation, subresources. It depends on
//! the storage and the authorizers, and not on the filter chain.

pub mod admission;
pub(crate) mod alloc;
pub mod announce;
pub mod cause;
pub(crate) mod conversion;
pub(crate) mod device_claims;
pub(crate) mod edit;
pub(crate) mod escalation;
pub(crate) mod hooks;
pub(crate) mod initializers;
pub(crate) mod options;
pub(crate) mod policy_params;
pub(crate) mod respond;
pub(crate) mod shape;
pub(crate) mod subresources;
pub mod usage;
pub(crate) mod verbs;
pub(crate) mod versions;
pub(crate) mod websocket;
pub(crate) mod write;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::authentication::Authenticator;
use crate::authorization;
use crate::outbound::kubelets::Kubelets;
use crate::outbound::local_nodes::LocalNodes;
use crate::outbound::tunnels::Dialer;
use crate::storage::Storage;
use crate::storage::encryption::Encryption;
use stdx::cidr::IpNet;
use stdx::clock::SharedClock;

/// The flags that verbs and subresources use.
#[derive(Debug, Clone)]
pub struct Config {
    pub event_ttl: Duration,
    /// `10.96.0.0/16`, and a range of the other family for dual stack.
    pub service_cidrs: Vec<IpNet>,
    pub node_ports: RangeInclusive<u16>,
    pub advertise_address: IpAddr,
    pub port: u16,
    /// The issuers of service account tokens; the first signs.
    pub issuers: Vec<String>,
    /// A watch without a timeout gets a random one between this value and twice this value.
    pub min_request_timeout: Duration,
    pub encryption: Option<Arc<Encryption>>,
    pub clock: SharedClock,
    /// Whether each write is stored with its cause.
    pub records_causes: bool,
    pub kubelets: Option<Arc<Kubelets>>,
}

impl Config {
    /// The issuer of the tokens that this server signs.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }
}

/// The dependencies of the verbs: storage, authorizers, admission and allocation.
pub struct Registry {
    pub config: Config,
    pub storage: Arc<Storage>,
    pub authentication: Authenticator,
    pub(crate) authorizer: authorization::Union,
    /// The roles, whichever authorizers are configured: no user grants permissions through them that they do not hold.
    pub(crate) rbac: Arc<authorization::rbac::Rbac>,
    pub admission: Arc<admission::Setup>,
    pub(crate) alloc: alloc::Allocator,
    pub(crate) webhooks: admission::webhook::Compiled,
    pub(crate) validating_policies: admission::policy::Policies<admission::policy::Validating>,
    pub(crate) mutating_policies: admission::policy::Policies<admission::policy::Mutating>,
    pub(crate) conversions: conversion::Webhooks,
    pub(crate) admitted: admission::metrics::AdmissionMetrics,
    /// Opens the connections to kubelets and pods.
    pub dialer: Arc<Dialer>,
    pub(crate) turns: admission::resource_quota::NamespaceLocks,
    /// Nodes of this process, which have no kubelet to call.
    pub local_nodes: OnceLock<Box<dyn LocalNodes>>,
    /// The health of the other components that run in this process.
    pub local_health: OnceLock<subresources::component_status::LocalHealth>,
    /// True once the server drains: watches end.
    pub closing: watch::Sender<bool>,
}

impl Registry {
    pub(crate) fn new(
        config: Config,
        storage: Arc<Storage>,
        authentication: Authenticator,
        authorization: &[authorization::config::Setting],
        admission: (Arc<admission::Setup>, &prometheus::Registry),
        closing: watch::Sender<bool>,
    ) -> Registry {
        let rbac = Arc::new(authorization::rbac::Rbac::new(&storage.caches));
        let (admission, metrics) = admission;
        authorization::metrics::register(metrics);
        Registry {
            authorizer: authorization::Union::new(authorization, &storage.caches, &rbac),
            rbac,
            alloc: alloc::Allocator::new(&config),
            webhooks: Default::default(),
            validating_policies: Default::default(),
            mutating_policies: Default::default(),
            conversions: Default::default(),
            admitted: admission::metrics::AdmissionMetrics::new(metrics, &admission),
            admission,
            dialer: Arc::new(Dialer::new(storage.clone())),
            turns: Default::default(),
            local_nodes: OnceLock::new(),
            local_health: OnceLock::new(),
            config,
            storage,
            authentication,
            closing,
        }
    }

    /// Replaces the authorizers.
    pub(crate) fn set_authorization(&self, settings: &[authorization::config::Setting]) {
        self.authorizer.replace(settings, &self.storage.caches, &self.rbac);
    }

    /// Seconds since the Unix epoch.
    pub(crate) fn now(&self) -> i64 {
        self.config.clock.now().seconds
    }
}
