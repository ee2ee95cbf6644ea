//! The paths of the API and the handler of each: resources, discovery, OpenAPI, health and metrics.

pub(crate) mod discovery;
pub mod health;
pub mod openapi;
pub(crate) mod openid;
pub(crate) mod router;
pub mod why;

use std::sync::{Arc, OnceLock};

use crate::fairness::Fairness;
use crate::metrics::Metrics;
use crate::registry::Registry;

/// What the handlers of the paths work with.
pub struct Routes {
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub(crate) fairness: Arc<Fairness>,
    /// Whether requests pass priority and fairness, so that there is something to dump.
    pub(crate) is_fair: bool,
    pub health: health::Health,
    /// The scheduler that explains why a pod is pending.
    pub scheduler: OnceLock<Arc<dyn why::Explains>>,
    discovery: discovery::Documents,
    openapi: openapi::Documents,
}

impl Routes {
    pub(crate) fn new(
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        fairness: Arc<Fairness>,
        is_fair: bool,
    ) -> Routes {
        Routes {
            discovery: discovery::Documents::new(&registry.storage.resources),
            openapi: openapi::Documents::default(),
            health: health::Health::new(registry.now()),
            scheduler: OnceLock::new(),
            registry,
            metrics,
            fairness,
            is_fair,
        }
    }
}
