//! The one crate that knows that all parts run together: configuration, certificates, start and end.

pub mod boot;
pub mod cli;
pub mod kubeconfig;
pub mod pki;
