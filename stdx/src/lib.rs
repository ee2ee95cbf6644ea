//! Utilities that the standard library lacks and several crates need.
//!
//! A module belongs here if two crates use it and it has no subject of its own. Nothing here depends on Kubernetes or
//! HTTP: every crate may depend on this one.

#![warn(unreachable_pub)]

pub mod backoff;
pub mod cidr;
pub mod clock;
pub mod error;
pub mod exposition;
pub mod fnv;
pub mod fs;
pub mod hex;
pub mod mountinfo;
pub mod panic;
pub mod sources;
pub mod suggest;
pub mod sync;
pub mod token_bucket;
#[cfg(any(test, feature = "testing"))]
pub mod wait;
