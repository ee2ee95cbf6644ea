//! Client-side rate limiting: a number of requests per second, with a burst.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;
use tokio::time::Instant;

use crate::{ResponseFuture, Transport};

/// A transport with a limited request rate.
pub struct ThrottledTransport {
    inner: Arc<dyn Transport>,
    bucket: Mutex<TokenBucket<Instant>>,
}

impl ThrottledTransport {
    /// Without a positive `per_second` requests are not limited.
    pub fn wrap(inner: Arc<dyn Transport>, per_second: f64, burst: u32) -> Arc<dyn Transport> {
        if per_second <= 0.0 {
            return inner;
        }
        let bucket = TokenBucket::new(per_second, f64::from(burst.max(1)), Instant::now());
        Arc::new(ThrottledTransport { inner, bucket: Mutex::new(bucket) })
    }
}

impl Transport for ThrottledTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let wait = self.bucket.lock().reserve(Instant::now());
        Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            self.inner.send(request).await
        })
    }
}
