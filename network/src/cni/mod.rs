//! CNI: configurations are found and run, and what was made is remembered.

pub mod builtin;
pub mod cache;
pub mod conf;
pub mod error;
pub mod exec;
mod facade;
pub mod invoke;
pub mod list;
pub mod names;
mod pod;
pub mod reader;
pub mod reaper;
pub mod result;
pub mod version;

pub use crate::cidr::IpNet;
pub use error::Error;
pub use facade::{Attached, Cni, CniOptions, NotReady};
pub use pod::{Attachment, Bandwidth, PodId, PortMapping};
