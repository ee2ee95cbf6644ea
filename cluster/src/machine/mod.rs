//! The state of a cluster on its machine: an identity, a network, locks, and the host state that its node leaves
//! outside of the data directory. This module does not depend on the API.

pub(crate) mod address;
pub(crate) mod files;
pub(crate) mod host_state;
pub(crate) mod identity;
pub(crate) mod instance;
pub(crate) mod listen;
pub(crate) mod lock;
pub(crate) mod loopback;
pub(crate) mod network;
pub(crate) mod pod_address;
pub(crate) mod pods;
pub(crate) mod preflight;
pub(crate) mod run_state;
pub(crate) mod trust;
