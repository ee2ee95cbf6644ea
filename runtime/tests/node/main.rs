//! The runtime as its clients see it: the real program on a socket, with real containers. These tests need root.

#![allow(clippy::unwrap_used, clippy::large_futures)]

#[path = "../shared/busybox.rs"]
mod busybox;
mod containers;
#[path = "../shared/registry.rs"]
mod debian;
#[path = "../shared/containerd.rs"]
mod debian_containerd;
#[path = "../shared/nginx.rs"]
mod debian_nginx;
mod floods;
mod handlers;
mod harness;
mod isolation;
mod leaks;
mod measures;
mod network;
mod nginx;
mod recovery;
mod security;
mod stream_client;
mod streaming;
mod suite;
mod transports;
mod usage;
mod volumes;
