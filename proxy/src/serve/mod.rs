//! The servers of a proxy: its health, its metrics, and the health of Services for load balancers.

pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
pub(crate) mod service_health;
