//! The one crate that knows that all parts run together: configuration, certificates, start and end.

mod addons;
pub mod apiserver;
pub mod boot;
pub mod certs;
pub mod cli;
pub mod components;
pub mod credentials;
mod delegated;
pub mod error;
mod extenders;
mod files;
mod flags;
pub mod kubeconfig;
pub mod local;
mod logs;
pub mod manager;
pub mod pki;
pub mod up;
pub mod why;
