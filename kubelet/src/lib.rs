//! The kubelet: it runs the pods that are bound to this node and reports their status. The kubelet is an ordinary
//! client of the API and a CRI client of the container runtime.

#![warn(unreachable_pub)]

mod admission;
mod clock;
pub mod config;
pub mod eviction;
mod gc;
mod images;
pub mod kubelet;
mod liveness;
mod logs;
mod metrics;
pub mod model;
pub mod network_gate;
pub mod node;
pub mod objects;
pub mod pod;
pub mod resources;
pub mod runtime;
pub mod server;
pub mod shutdown;
mod sources;
pub mod volumes;

pub use config::Config;
pub use kubelet::{Environment, Kubelet, start};
