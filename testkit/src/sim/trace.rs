//! Records the writes of a run in order, with the server's whole responses.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use client::{Body, ResponseFuture, Transport};
use http::{Method, Request};
use http_body_util::Full;
use stdx::sync::Mutex;

use super::Outcome;

/// The requests of a simulation, in order.
#[derive(Default)]
pub struct Trace {
    writes: Mutex<Vec<String>>,
    /// All requests, also reads, without their responses: they show first where two runs differ.
    requests: Mutex<Vec<String>>,
    start: OnceLock<tokio::time::Instant>,
    /// Writes in progress or completed, except the renewal of leases.
    stir: AtomicUsize,
}

impl Trace {
    /// A transport that records requests.
    pub fn around(self: &Arc<Trace>, inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(TracedTransport { inner, trace: self.clone() })
    }

    /// All writes and requests so far, and a hash of the writes.
    pub fn outcome(&self) -> Outcome {
        let writes = self.writes.lock().clone();
        let mut hasher = DefaultHasher::new();
        writes.hash(&mut hasher);
        let requests = self.requests.lock().clone();
        Outcome { hash: hasher.finish(), writes, requests }
    }

    /// The number of writes whose line contains this text.
    pub fn count(&self, text: &str) -> usize {
        self.writes.lock().iter().filter(|line| line.contains(text)).count()
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.writes.lock().len()
    }

    /// Another number whenever something may have changed that is worth a look.
    pub fn stir(&self) -> usize {
        self.stir.load(Ordering::Relaxed)
    }

    /// Whether there were no writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ask(&self, line: String) {
        let at = tokio::time::Instant::now();
        let start = *self.start.get_or_init(|| at);
        let line = format!("{:?} {line}", at - start);
        self.requests.lock().push(line);
    }

    fn note(&self, line: String) {
        self.writes.lock().push(line);
    }
}

struct TracedTransport {
    inner: Arc<dyn Transport>,
    trace: Arc<Trace>,
}

impl TracedTransport {
    async fn exchange(&self, request: Request<Bytes>) -> client::Result<http::Response<Body>> {
        let (method, path) = (request.method().clone(), request.uri().to_string());
        self.trace.ask(format!("{method} {path}"));
        if method == Method::GET {
            return self.inner.send(request).await;
        }
        let stirs = usize::from(!path.contains("/leases/"));
        self.trace.stir.fetch_add(stirs, Ordering::Relaxed);
        let (parts, body) = self.inner.send(request).await?.into_parts();
        let body = body.whole().await?;
        self.trace.stir.fetch_add(stirs, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        self.trace.note(format!("{method} {path} {} {:016x}", parts.status.as_u16(), hasher.finish()));
        Ok(http::Response::from_parts(parts, Body::new(Full::new(body))))
    }
}

impl Transport for TracedTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}
