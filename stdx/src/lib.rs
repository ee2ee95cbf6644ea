//! What the standard library lacks and several crates need, once.
//!
//! A module belongs here if two crates use it and it has no subject of its own. Nothing here knows Kubernetes, HTTP or
//! an executor other than tokio's clock, so that every crate may depend on it.

pub mod sync;
