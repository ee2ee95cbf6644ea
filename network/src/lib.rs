//! Everything that ends in netlink: the network of pods.
//!
//! `netlink` and `nft` speak to the kernel directly and know nothing of pods; `cni` runs network configurations;
//! `plugins` are the plugins of that binary, in process and as executables. Nothing here knows a pod's lifecycle.

pub mod cidr;
pub mod cni;
pub mod executable;
pub mod fault;
pub mod netlink;
pub mod nft;
pub mod ns;
pub mod plugins;
pub mod spec;
pub mod sysctl;
