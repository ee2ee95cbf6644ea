//! Both ends against each other over loopback, and real clients against ours.

#![allow(clippy::unwrap_used)]

mod commands;
mod fuzz;
mod kubectl;
mod ports;
mod server;
mod sessions;
