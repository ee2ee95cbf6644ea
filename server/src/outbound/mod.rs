//! Connections that the server opens itself: to webhooks, kubelets and endpoints of services.

pub(crate) mod addresses;
pub mod callout;
pub(crate) mod endpoints;
pub mod kubelets;
pub mod local_nodes;
pub mod tunnels;
pub mod user_headers;
