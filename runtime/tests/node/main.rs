//! The runtime as its clients see it: the real program on a socket, real containers. They need root.

#![allow(clippy::unwrap_used, clippy::large_futures)]

mod containers;
mod floods;
mod handlers;
mod harness;
mod leaks;
mod measures;
mod recovery;
mod security;
mod streaming;
mod volumes;
