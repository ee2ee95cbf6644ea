//! The container runtime: images, sandboxes, containers and the CRI service over them.
//!
//! The crate is independent of Kubernetes objects: a kubelet calls it through CRI, in process or over a socket.

#![warn(unreachable_pub)]

mod capabilities;
pub mod cli;
pub mod container;
mod devices;
pub mod error;
pub mod hello;
pub mod images;
mod ipc;
mod oci;
mod plan;
mod private;
mod seccomp;
pub mod service;
mod shim;
mod spec;
pub mod sys;
mod title;
mod userns;
pub mod zygote;
