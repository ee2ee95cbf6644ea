//! The one crate that knows that all parts run together: configuration, certificates, start and end.

pub mod apiserver;
pub mod boot;
pub mod cli;
pub mod error;
pub mod kubeconfig;
mod logs;
pub mod pki;
pub mod up;
