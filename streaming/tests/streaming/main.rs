//! Both ends against each other over loopback, and real clients against ours.

mod commands;
mod fuzz;
mod kubectl;
mod ports;
mod server;
