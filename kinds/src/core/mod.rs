//! The kinds of the `core` group, one file per kind.

pub mod binding;
pub mod component_status;
pub mod config_map;
pub mod endpoints;
pub mod event;
pub(crate) mod limit_range;
pub mod namespace;
pub mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub mod pod;
pub(crate) mod pod_template;
pub(crate) mod replication_controller;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;
