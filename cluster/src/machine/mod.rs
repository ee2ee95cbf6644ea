//! What a cluster has on its machine: an identity, a network, locks, and the host state that its node leaves outside of
//! the data directory. Nothing here knows the API.

pub mod address;
pub mod files;
pub mod host_state;
pub mod identity;
pub mod lock;
pub mod loopback;
pub mod network;
pub mod pod_address;
pub mod pods;
