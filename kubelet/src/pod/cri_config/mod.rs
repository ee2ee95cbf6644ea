//! What the runtime is asked for: sandboxes and containers as CRI describes them, made from pods. Pure.

pub mod container;
pub mod dns;
pub mod env;
mod env_file;
pub mod hostname;
pub mod memory;
pub mod resources;
pub mod sandbox;
mod security;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use api::Tree;

use crate::model::pod;

/// The directory of a pod's logs.
pub fn log_dir(root: &std::path::Path, pod: &Tree) -> PathBuf {
    root.join(format!("{}_{}_{}", pod::namespace(pod), pod::name(pod), pod::uid(pod)))
}

/// `pod_namespace(uid)`, as messages name a pod.
pub fn named(pod: &Tree) -> String {
    format!("{}_{}({})", pod::name(pod), pod::namespace(pod), pod::uid(pod))
}
