//! The node agent: from a pod that is bound to this node to containers that run, and back as the pod's status. It
//! is an ordinary client of the API and speaks CRI to whatever makes the containers.

mod action;
pub mod admit;
pub mod agent;
pub mod cgroups;
mod collect;
pub mod config;
pub mod disk;
mod erase;
mod events;
pub mod expand;
pub mod fields;
mod health;
mod hooks;
pub mod images;
mod log_files;
pub mod make;
pub mod managers;
pub mod meters;
pub mod node;
pub mod objects;
mod past;
pub mod plan;
pub mod pod;
pub mod pressure;
pub mod probes;
mod pulse;
pub mod resize;
mod rotation;
pub mod run;
pub mod runtime;
pub mod serve;
pub mod sources;
pub mod state;
pub mod status;
pub mod stop;
pub mod usage;
pub mod users;
pub mod volumes;
pub mod worker;

pub use config::Config;
pub use run::{Environment, Running, start};
