//! The node agent: from a pod that is bound to this node to containers that run, and back as the pod's status. It
//! is an ordinary client of the API and speaks CRI to whatever makes the containers.

pub mod config;
pub mod make;
pub mod plan;
pub mod pod;
pub mod runtime;
pub mod serve;
pub mod state;
pub mod status;
pub mod volumes;

pub use config::Config;
