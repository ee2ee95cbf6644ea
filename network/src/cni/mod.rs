//! The runtime's side of CNI: loads network configurations, runs their plugins, and caches their results.

pub mod builtin;
pub mod cache;
pub mod conf;
mod exec;
mod facade;
pub mod invoke;
pub mod list;
mod pod;

pub use crate::cidr::IpNet;
pub use crate::spec::error::Error;
pub use facade::{Cni, CniOptions, NotReady, PodNetwork};
pub use pod::{Attachment, Bandwidth, PodId, PortMapping};
