//! The paths of the API and the handler of each: resources, discovery, OpenAPI, health and metrics.

pub mod discovery;
pub mod health;
pub mod openapi;
pub(crate) mod openid;
pub(crate) mod router;
pub mod why;
