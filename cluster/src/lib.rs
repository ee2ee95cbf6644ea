//! The one crate that knows that all parts run together: configuration, certificates, start and end.

mod addons;
pub mod apiserver;
pub mod boot;
pub mod certs;
pub mod cli;
pub mod components;
pub mod credentials;
pub mod error;
mod files;
pub mod kubeconfig;
pub mod local;
mod logs;
pub mod pki;
pub mod up;
