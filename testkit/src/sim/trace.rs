//! What was written in a run, in order: every answer of the server to a write, whole.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use client::{Body, Sending, Transport};
use http::{Method, Request};
use http_body_util::Full;

use super::Outcome;

#[derive(Default)]
pub struct Trace(Mutex<Vec<String>>);

impl Trace {
    /// A way to the server on which writes are noted.
    pub fn around(self: &Arc<Trace>, inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(Traced { inner, trace: self.clone() })
    }

    pub fn outcome(&self) -> Outcome {
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut hasher = DefaultHasher::new();
        writes.hash(&mut hasher);
        Outcome { hash: hasher.finish(), writes }
    }

    /// How many writes were made whose line contains this text.
    pub fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|line| line.contains(text)).count()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

struct Traced {
    inner: Arc<dyn Transport>,
    trace: Arc<Trace>,
}

impl Traced {
    async fn exchange(&self, request: Request<Bytes>) -> client::Result<http::Response<Body>> {
        if request.method() == Method::GET {
            return self.inner.send(request).await;
        }
        let (method, path) = (request.method().clone(), request.uri().to_string());
        let (parts, body) = self.inner.send(request).await?.into_parts();
        let body = body.whole().await?;
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        self.trace.note(format!("{method} {path} {} {:016x}", parts.status.as_u16(), hasher.finish()));
        Ok(http::Response::from_parts(parts, Body::new(Full::new(body))))
    }
}

impl Transport for Traced {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        Box::pin(self.exchange(request))
    }
}
