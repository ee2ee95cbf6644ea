//! A pod in the scheduling queue, as queue sort plugins see it.

use std::sync::Arc;

use tokio::time::Instant;

use podmodel::Pod;

/// A queued pod.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    pub pod: Arc<Pod>,
    /// When it was added or last rejected.
    pub since: Instant,
    /// When it was first attempted.
    pub first_tried: Option<Instant>,
    /// The number of attempts.
    pub attempts: u32,
    /// Consecutive rejections or failures, for the backoff.
    pub failures: u32,
    /// Plugins that rejected it in the last attempt.
    pub rejected_by: Vec<&'static str>,
}
