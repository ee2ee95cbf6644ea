//! The API server: the request path from the socket to the store. It depends on no controller, and only the API server
//! accesses the store.

#![warn(unreachable_pub)]

pub mod aggregation;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod bootstrap;
pub(crate) mod call;
pub mod common;
pub(crate) mod fairness;
pub mod filters;
pub mod http;
pub mod metrics;
pub mod outbound;
pub mod registry;
pub mod request;
pub mod routes;
mod server;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod tls;

pub use common::identity::hostname;
pub use server::{Config, Server};
