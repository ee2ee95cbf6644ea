//! The webhook backend: posts lists of events to a server that may be slow or unreachable for a while.

use std::time::Duration;

use tokio::time::sleep;

use crate::outbound::callout::{self, kubeconfig::Remote};

/// The number of attempts to send a list.
const TRIES: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why events were not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Call(#[from] callout::Error),
    #[error("it returned {0}")]
    Code(u16),
}

/// The server that events are posted to.
pub struct Webhook {
    pub remote: Remote,
    pub initial_backoff: Duration,
}

impl Webhook {
    /// Sends events as one list.
    pub(crate) async fn send(&self, events: &[Vec<u8>]) -> Result<(), SendError> {
        let body = event_list(events);
        let mut backoff = self.initial_backoff;
        let mut attempt = 1;
        loop {
            let problem = match self.remote.client.post_json(&self.remote.url, body.clone(), TIMEOUT).await {
                Ok(response) if response.is_success() => return Ok(()),
                // A server that rejects the content of a list would reject it again.
                Ok(response) if response.code < 500 && response.code != 429 => {
                    tracing::error!(code = response.code, "audit webhook rejected events");
                    return Err(SendError::Code(response.code));
                }
                Ok(response) => SendError::Code(response.code),
                Err(error) => error.into(),
            };
            tracing::warn!(attempt, %problem, "failed to send events to audit webhook");
            if attempt == TRIES {
                return Err(problem);
            }
            attempt += 1;
            sleep(backoff).await;
            backoff = backoff.mul_f64(1.5);
        }
    }
}

fn event_list(events: &[Vec<u8>]) -> Vec<u8> {
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
