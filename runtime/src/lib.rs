//! The container runtime: images, sandboxes, containers and the CRI service over them.
//!
//! It knows nothing of Kubernetes objects: a kubelet speaks CRI to it, in process or over a socket.

mod capabilities;
pub mod cli;
pub mod container;
mod devices;
pub mod error;
pub mod hello;
pub mod images;
mod ipc;
pub mod oci;
pub mod plan;
mod private;
pub mod seccomp;
pub mod service;
pub mod shim;
pub mod spec;
pub mod sys;
mod title;
mod userns;
pub mod zygote;
