//! The runtime as its clients see it: the real program on a socket, real containers. They need root.

mod containers;
mod handlers;
mod harness;
mod recovery;
mod security;
mod streaming;
