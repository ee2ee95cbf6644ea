//! Gives waiting pods their nodes. Decisions are pure functions of a snapshot that is kept up to date by
//! each change; a thin shell watches, binds and tells. It is an ordinary client of the API.

pub mod changes;
pub mod config;
pub mod core;
pub mod cycle;
pub mod extender;
pub mod framework;
mod metrics;
pub mod model;
pub mod permit;
pub mod plugins;
mod pod_resources;
pub mod profile;
#[cfg(test)]
mod properties;
pub mod queue;
pub mod reference;
mod shell;
pub mod snapshot;
mod specs;
#[cfg(test)]
mod testing;
mod why;

pub use metrics::{Gauges, Metrics};
pub use shell::{Environment, Explainer, Running, stand_by, start};

/// The profile of pods that name no scheduler, with all plugins.
pub fn default_profile() -> profile::Profile {
    plugins::list::default_profile(plugins::list::DEFAULT_SCHEDULER)
}
