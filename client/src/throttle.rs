//! Holds requests back so that there are no more of them in a second than was asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use stdx::sync::Mutex;
use tokio::time::Instant;

use crate::{ResponseFuture, Transport};

/// A transport that lets a burst pass at once, and from then on so many a second.
pub struct Throttled {
    inner: Arc<dyn Transport>,
    pace: Mutex<Pace>,
}

/// Tokens come with time, up to the burst. Whoever finds none takes one of those to come.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    burst: f64,
    tokens: f64,
    last: Instant,
}

impl Pace {
    /// So many at once, and from then on so many a second.
    pub fn new(per_second: f64, burst: u32) -> Pace {
        let burst = f64::from(burst.max(1));
        Pace { per_second, burst, tokens: burst, last: Instant::now() }
    }

    /// How long the next one has to wait.
    pub fn take(&mut self, now: Instant) -> Duration {
        let came = now.saturating_duration_since(self.last).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + came).min(self.burst) - 1.0;
        self.last = now;
        Duration::from_secs_f64((-self.tokens).max(0.0) / self.per_second)
    }
}

impl Throttled {
    /// Where `per_second` is not above 0 nothing is held back.
    pub fn around(inner: Arc<dyn Transport>, per_second: f64, burst: u32) -> Arc<dyn Transport> {
        if per_second <= 0.0 {
            return inner;
        }
        Arc::new(Throttled { inner, pace: Mutex::new(Pace::new(per_second, burst)) })
    }
}

impl Transport for Throttled {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let wait = self.pace.lock().take(Instant::now());
        Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            self.inner.send(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_waits_its_turn() {
        let start = Instant::now();
        let mut pace = Pace { per_second: 10.0, burst: 3.0, tokens: 3.0, last: start };
        let mut take = |after_millis: u64| pace.take(start + Duration::from_millis(after_millis)).as_millis();
        assert_eq!([take(0), take(0), take(0)], [0, 0, 0]);
        assert_eq!([take(0), take(0)], [100, 200]);
        // Those to come are taken already.
        assert_eq!(take(200), 100);
        assert_eq!([take(10_000), take(10_000), take(10_000), take(10_000)], [0, 0, 0, 100]);
    }
}
