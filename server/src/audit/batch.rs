//! Sends events in batches from a bounded queue, at a throttled rate.

use std::sync::Arc;
use std::time::Duration;

use stdx::token_bucket::TokenBucket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::backend::Sink;

/// The batch settings from the flags.
#[derive(Debug, Clone)]
pub struct Batch {
    pub buffer: usize,
    pub max_size: usize,
    pub max_wait: Duration,
    pub throttle: bool,
    /// Batches a second on average.
    pub qps: f64,
    /// Batches at once after a quiet time.
    pub burst: u32,
}

impl Batch {
    /// Upstream's defaults for the log.
    pub fn for_log() -> Batch {
        Batch { buffer: 10_000, max_size: 1, max_wait: Duration::ZERO, throttle: false, qps: 0.0, burst: 0 }
    }

    /// Upstream's defaults for the webhook.
    pub fn for_webhook() -> Batch {
        Batch { buffer: 10_000, max_size: 400, max_wait: Duration::from_secs(30), throttle: true, qps: 10.0, burst: 15 }
    }

    /// The invalid settings; `name` is log or webhook.
    pub fn problems(&self, name: &str) -> Vec<String> {
        let flag = |end: &str| format!("--audit-{name}-batch-{end} must be a positive number");
        let wrong = [
            (self.buffer == 0, "buffer-size"),
            (self.max_size == 0, "max-size"),
            (self.throttle && (self.qps <= 0.0 || !self.qps.is_finite()), "throttle-qps"),
            (self.throttle && self.burst == 0, "throttle-burst"),
        ];
        wrong.into_iter().filter(|(wrong, _)| *wrong).map(|(_, end)| flag(end)).collect()
    }
}

impl Batch {
    fn throttle(&self) -> Option<TokenBucket<Instant>> {
        self.throttle.then(|| TokenBucket::new(self.qps, f64::from(self.burst), Instant::now()))
    }
}

/// Delivers batches until the server ends, then delivers the remaining events at once.
pub async fn run(
    batch: Batch,
    max_bytes: usize,
    mut events: mpsc::Receiver<Vec<u8>>,
    mut ending: watch::Receiver<bool>,
    sink: Arc<Sink>,
) {
    let mut throttle = batch.throttle();
    loop {
        let first = tokio::select! {
            biased;
            event = events.recv() => event,
            _ = ending.wait_for(|ending| *ending) => events.try_recv().ok(),
        };
        let Some(first) = first else { return };
        let list = collect(first, &batch, &mut events, &mut ending).await;
        if !*ending.borrow() {
            sleep(throttle.as_mut().map_or(Duration::ZERO, |bucket| bucket.reserve(Instant::now()))).await;
        }
        for part in split(list, max_bytes) {
            sink.deliver(&part).await;
        }
    }
}

/// More events, until the batch is full, its time is over, or the server ends.
async fn collect(
    first: Vec<u8>,
    batch: &Batch,
    events: &mut mpsc::Receiver<Vec<u8>>,
    ending: &mut watch::Receiver<bool>,
) -> Vec<Vec<u8>> {
    let until = Instant::now() + batch.max_wait;
    let mut list = vec![first];
    while list.len() < batch.max_size {
        let next = tokio::select! {
            biased;
            event = timeout_at(until, events.recv()) => event.ok().flatten(),
            _ = ending.wait_for(|ending| *ending) => events.try_recv().ok(),
        };
        match next {
            Some(event) => list.push(event),
            None => break,
        }
    }
    list
}

/// Splits events into parts that are no larger than allowed, unless a single event is.
fn split(events: Vec<Vec<u8>>, max_bytes: usize) -> Vec<Vec<Vec<u8>>> {
    let mut parts: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut size = 0;
    for event in events {
        match parts.last_mut() {
            Some(part) if size + event.len() <= max_bytes => {
                size += event.len();
                part.push(event);
            }
            _ => {
                size = event.len();
                parts.push(vec![event]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_split_by_their_size() {
        let event = |length: usize| vec![b'x'; length];
        let sizes = |lengths: &[usize]| {
            let parts = split(lengths.iter().map(|length| event(*length)).collect(), 10);
            parts.iter().map(|part| part.iter().map(Vec::len).collect()).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(sizes(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(sizes(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(sizes(&[11, 2, 20, 3]), [vec![11], vec![2], vec![20], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn throttle_accumulates_up_to_its_burst() {
        let start = Instant::now();
        let batch = Batch { qps: 10.0, burst: 2, ..Batch::for_webhook() };
        let mut bucket = batch.throttle().expect("webhooks are throttled");
        let at = |millis: u64| start + Duration::from_millis(millis);
        let steps = [(0, 0), (0, 0), (0, 100), (0, 200), (300, 0), (5300, 0), (5300, 0), (5300, 100)];
        for (millis, want) in steps {
            assert_eq!(bucket.reserve(at(millis)).as_millis(), want, "{millis}");
        }
        assert!(Batch::for_log().throttle().is_none());
    }

    #[test]
    fn invalid_settings_name_their_flag() {
        assert!(Batch::for_log().problems("log").is_empty() && Batch::for_webhook().problems("webhook").is_empty());
        let bad = Batch { buffer: 0, max_size: 0, throttle: true, qps: 0.0, burst: 0, ..Batch::for_log() };
        let text = bad.problems("log").join("\n");
        for flag in ["buffer-size", "max-size", "throttle-qps", "throttle-burst"] {
            assert!(text.contains(&format!("--audit-log-batch-{flag} must be")), "{text}");
        }
    }
}
