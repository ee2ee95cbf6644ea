//! The container runtime: images, sandboxes, containers and the CRI service over them.
//!
//! It knows nothing of Kubernetes objects: a kubelet speaks CRI to it, in process or over a socket.

pub mod hello;
pub mod images;
