//! The control loops: a folder a controller, each an ordinary client of the API that acts as its own
//! service account. A loop decides by pure functions on what informers hold; nothing polls.

mod barrier;
mod bootstrap_tokens;
mod certificates;
mod choice;
mod cluster_role_aggregation;
mod cron_job;
mod daemonset;
mod deployment;
mod disruption;
mod framework;
mod garbage_collector;
mod job;
mod list;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod options;
mod pod_certificate_requests;
mod pod_garbage_collector;
mod replicaset;
mod root_ca;
mod run;
mod service_account;
mod service_account_token;
mod statefulset;
mod support;
mod taint_eviction;
mod trust_bundle;
mod ttl;
mod ttl_after_finished;

use client::Key;

pub use choice::names;
pub use framework::{Context, Outcome, Reconcile, Reconciling, Setup};
pub use options::{Options, Signer, Signers};
pub use run::{Environment, Running, start};

/// The namespace that a key is of.
fn namespace_of(key: &Key) -> Key {
    key.split_once('/').map_or_else(|| key.clone(), |(namespace, _)| Key::from(namespace))
}
