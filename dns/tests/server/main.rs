//! A real server on the loopback interface, with real clients, upstreams and files.

mod cluster;
mod forwarding;
mod limits;
mod reload;
mod support;
mod transports;
