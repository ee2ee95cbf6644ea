//! Pods that wait: those to be tried, those that pause after a failure, and those that wait for an event.

use std::sync::Arc;

use tokio::time::Instant;

use crate::model::Pod;

/// A pod that waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub pod: Arc<Pod>,
    /// Since when it has been in the queue this time.
    pub since: Instant,
    /// How often it was tried.
    pub attempts: u32,
    /// Names of the plugins that refused it when it was last tried.
    pub refused_by: Vec<&'static str>,
}
