//! Holds requests back so that there are no more of them in a second than was asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;
use tokio::time::Instant;

use crate::{ResponseFuture, Transport};

/// A transport that lets a burst pass at once, and from then on so many a second.
pub struct Throttled {
    inner: Arc<dyn Transport>,
    bucket: Mutex<TokenBucket<Instant>>,
}

impl Throttled {
    /// Where `per_second` is not above 0 nothing is held back.
    pub fn around(inner: Arc<dyn Transport>, per_second: f64, burst: u32) -> Arc<dyn Transport> {
        if per_second <= 0.0 {
            return inner;
        }
        let bucket = TokenBucket::new(per_second, f64::from(burst.max(1)), Instant::now());
        Arc::new(Throttled { inner, bucket: Mutex::new(bucket) })
    }
}

impl Transport for Throttled {
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
