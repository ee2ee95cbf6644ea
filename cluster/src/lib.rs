//! The one crate that knows that all parts run together: configuration, certificates, start and end.

#[macro_use]
mod flags;

pub mod addons;
pub mod agent;
pub mod apiserver;
pub mod arguments;
pub mod boot;
pub mod certs;
pub mod cli;
pub mod component;
pub mod components;
pub mod credentials;
pub mod error;
mod extenders;
pub mod kubeconfig;
pub mod leader;
pub mod local;
mod logs;
pub mod machine;
pub mod manager;
pub mod node;
pub mod pki;
pub mod reset;
pub mod scheduling;
pub mod up;
pub mod why;
