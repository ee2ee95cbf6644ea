//! The paths of the API and the handler of each: resources, discovery, OpenAPI, health and metrics.

pub(crate) mod discovery;
pub mod health;
mod history;
pub mod openapi;
pub(crate) mod openid;
pub(crate) mod router;
mod tunnel;
pub mod why;

use std::sync::{Arc, OnceLock};

use crate::aggregation::Aggregator;
use crate::fairness::Fairness;
use crate::metrics::Metrics;
use crate::registry::Registry;

/// The dependencies of the handlers.
pub struct Routes {
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub(crate) fairness: Arc<Fairness>,
    /// Whether priority and fairness is enabled, and its dump available.
    pub(crate) is_fair: bool,
    pub health: health::Health,
    /// The scheduler that explains why a pod is pending.
    pub scheduler: OnceLock<Arc<dyn why::SchedulingExplainer>>,
    pub(crate) aggregator: Arc<Aggregator>,
    discovery: discovery::Documents,
    openapi: openapi::Documents,
}

impl Routes {
    pub(crate) fn new(
        registry: Arc<Registry>,
        aggregator: Aggregator,
        metrics: Arc<Metrics>,
        fairness: (Arc<Fairness>, bool),
    ) -> Routes {
        let (fairness, is_fair) = fairness;
        Routes {
            discovery: discovery::Documents::default(),
            openapi: openapi::Documents::default(),
            health: health::Health::new(registry.now()),
            scheduler: OnceLock::new(),
            aggregator: Arc::new(aggregator),
            registry,
            metrics,
            fairness,
            is_fair,
        }
    }
}
