//! CNI: configurations are found and run, and what was made is remembered.

pub mod builtin;
pub mod cache;
pub mod conf;
pub mod exec;
mod facade;
pub mod invoke;
pub mod list;
mod pod;

pub use crate::cidr::IpNet;
pub use crate::spec::error::Error;
pub use facade::{Attached, Cni, CniOptions, NotReady};
pub use pod::{Attachment, Bandwidth, PodId, PortMapping};
