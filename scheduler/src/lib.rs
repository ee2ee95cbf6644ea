//! Gives waiting pods their nodes. Decisions are pure functions of a snapshot that is kept up to date by
//! each change; a thin shell watches, binds and tells. It is an ordinary client of the API.

pub mod config;
pub mod cycle;
pub mod framework;
pub mod model;
pub mod plugins;
pub mod profile;
#[cfg(test)]
mod properties;
pub mod queue;
pub mod reference;
pub mod snapshot;
#[cfg(test)]
mod testing;
