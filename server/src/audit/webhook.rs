//! The webhook backend: events in batches to somebody else, who may be slow or away for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::Counts;
use crate::callout::kubeconfig::Remote;

/// What the flags say; upstream's defaults.
#[derive(Debug, Clone)]
pub struct Batch {
    pub buffer: usize,
    pub max_size: usize,
    pub max_wait: Duration,
    /// Batches a second at most; 0 is no bound.
    pub throttle_qps: f64,
    pub initial_backoff: Duration,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            buffer: 10_000,
            max_size: 400,
            max_wait: Duration::from_secs(30),
            throttle_qps: 10.0,
            initial_backoff: Duration::from_secs(10),
        }
    }
}

/// A batch is tried this often before it is given up.
const TRIES: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends until the other end of the channel is gone and all is sent.
pub async fn run(remote: Remote, batch: Batch, mut events: mpsc::Receiver<Vec<u8>>, counts: Arc<Counts>) {
    while let Some(first) = events.recv().await {
        let list = collect(first, &batch, &mut events).await;
        let count = list.len();
        if !send(&remote, &batch, event_list(&list)).await {
            counts.lost("webhook", count as u64);
        }
        if batch.throttle_qps > 0.0 {
            sleep(Duration::from_secs_f64(1.0 / batch.throttle_qps)).await;
        }
    }
}

/// More events, until the batch is full or its time is over.
async fn collect(first: Vec<u8>, batch: &Batch, events: &mut mpsc::Receiver<Vec<u8>>) -> Vec<Vec<u8>> {
    let until = Instant::now() + batch.max_wait;
    let mut list = vec![first];
    while list.len() < batch.max_size {
        match timeout_at(until, events.recv()).await {
            Ok(Some(event)) => list.push(event),
            _ => break,
        }
    }
    list
}

pub fn event_list(events: &[Vec<u8>]) -> Vec<u8> {
    let mut out = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(event);
    }
    out.extend_from_slice(b"]}");
    out
}

async fn send(remote: &Remote, batch: &Batch, body: Vec<u8>) -> bool {
    let mut backoff = batch.initial_backoff;
    for attempt in 1..=TRIES {
        let problem = match remote.client.post_json(&remote.url, body.clone(), TIMEOUT).await {
            Ok(answer) if answer.is_success() => return true,
            // Whoever refuses a batch for what it is would refuse it again.
            Ok(answer) if answer.code < 500 && answer.code != 429 => {
                tracing::error!(code = answer.code, "the audit webhook refuses events");
                return false;
            }
            Ok(answer) => format!("it answered {}", answer.code),
            Err(error) => error.to_string(),
        };
        tracing::warn!(attempt, problem, "the audit webhook did not take events");
        if attempt < TRIES {
            sleep(backoff).await;
            backoff = backoff.mul_f64(1.5);
        }
    }
    false
}
