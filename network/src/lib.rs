//! The pod network: netlink, nftables, and CNI with its standard plugins.
//!
//! `netlink` and `nft` are clients of the kernel and independent of pods. `spec` holds the types of the CNI
//! specification, `plugins` implements the standard plugins, `cni` runs network configurations for a container runtime,
//! and `executable` makes the plugins available as binaries. Nothing here depends on a pod's lifecycle.

#![warn(unreachable_pub)]

pub use stdx::cidr;
pub mod cni;
pub mod executable;
pub mod fault;
pub mod netlink;
pub mod nft;
pub mod ns;
pub mod plugins;
pub(crate) mod spec;
pub mod sysctl;
