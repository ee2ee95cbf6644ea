//! Runs all components together: configuration, certificates, start and stop. The layers, from the top:
//!
//! `cli` → `up` → `apiserver`, `controller_manager`, `kube_proxy`, `kube_scheduler`, `dns` → `control_plane` → `node` →
//! `component` → `pki` →
//! `machine` → `flags`, `logs`, `error`.

#![warn(unreachable_pub)]

#[macro_use]
mod flags;

pub mod apiserver;
pub mod cli;
pub mod component;
pub mod control_plane;
pub mod controller_manager;
pub mod dns;
pub mod error;
pub mod kube_proxy;
pub mod kube_scheduler;
mod logs;
mod machine;
pub mod node;
pub mod pki;
pub mod snapshots;
pub mod up;
