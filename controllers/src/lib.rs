//! The controllers, one directory each. Every controller is an ordinary API client that acts as its own service
//! account, decides with pure functions on the objects of informers, and never polls.

#![warn(unreachable_pub)]

mod barrier;
mod bootstrap_tokens;
mod certificates;
mod choice;
mod cluster_role_aggregation;
mod cron_job;
mod custom_resource_definition;
mod daemonset;
mod deployment;
mod device_taint_eviction;
mod discovery;
mod disruption;
mod endpoint_drain;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod framework;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod list;
mod local_path;
mod metadata_monitor;
mod metrics;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod options;
mod persistentvolume_attach_detach;
mod persistentvolume_binder;
mod persistentvolume_expander;
mod persistentvolume_protection;
mod persistentvolumeclaim_protection;
mod pod_certificate_requests;
mod pod_garbage_collector;
mod replicaset;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod run;
mod service;
mod service_account;
mod service_account_token;
mod service_cidr;
mod service_repair;
mod statefulset;
mod storage_version_migrator;
mod support;
mod taint_eviction;
mod trust_bundle;
mod ttl;
mod ttl_after_finished;
mod validating_admission_policy_status;
mod volumeattributesclass_protection;

use client::Key;
use framework::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

pub use bootstrap_tokens::{
    has_signature as has_cluster_info_signature, is_signed as is_signed_cluster_info, signature as sign_cluster_info,
};
pub use choice::{UnknownController, check, names, runs};
pub use cron_job::ZonedSchedule;
pub use local_path::default_class;
pub use options::{Options, Signer, Signers};
pub use run::{Environment, Handle, start, start_of_server};

/// The namespace part of a key.
fn namespace_of(key: &Key) -> Key {
    key.split_once('/').map_or_else(|| key.clone(), |(namespace, _)| Key::from(namespace))
}
