//! Images with real and hostile registries. Needs root, and Debian's docker-registry, busybox-static and skopeo.

#![allow(clippy::unwrap_used)]

mod archives;
mod broken;
#[path = "../shared/registry.rs"]
mod debian;
mod demo;
mod hostile;
mod overlay;
mod registry;
mod server;
mod support;
mod trust;
