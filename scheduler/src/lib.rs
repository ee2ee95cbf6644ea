//! Assigns pods to nodes. Decisions are pure functions of a snapshot that is updated by each change; a thin shell
//! watches, binds and records events. It is an ordinary API client.

#![warn(unreachable_pub)]

mod changes;
pub mod config;
mod core;
pub mod cycle;
mod explain;
pub mod extender;
pub mod framework;
mod metrics;
mod plugins;
mod pod_resources;
#[cfg(test)]
mod properties;
mod queue;
mod shell;
pub mod snapshot;
mod specs;
#[cfg(test)]
mod testing;

pub use metrics::{Gauges, Metrics};
pub use shell::{Environment, Explainer, SchedulerHandle, StartError, WhatIfError, start, start_standby};

/// The profile of the default scheduler, with all plugins.
pub fn default_profile() -> framework::Profile {
    profile_named(plugins::list::DEFAULT_SCHEDULER)
}

/// A profile of this scheduler name, with all plugins.
pub fn profile_named(scheduler_name: &str) -> framework::Profile {
    plugins::list::default_profile(scheduler_name)
}
