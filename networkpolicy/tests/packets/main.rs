//! Packets between pods, on a real kernel: nine pods of three namespaces on the built-in network of a node, each in a
//! network namespace that the test creates. They need root and the Debian package nftables.

#![allow(unsafe_code)]

mod cases;
mod connections;
mod lifecycle;
mod probe;
mod reference;
mod support;
mod truth;
