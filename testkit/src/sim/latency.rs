//! The latency of watches: each has its own millisecond in every quarter of a second. The server wakes watches of the
//! same objects in any order; different latencies make the order deterministic. Controllers also read old state, as in
//! a real cluster.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use client::{Body, Error, ResponseFuture, Transport};
use http::{Request, Response};
use http_body::Frame;
use stdx::sync::Mutex;
use tokio::time::{Instant, Sleep};

/// Each watch delivers once per period of this many milliseconds, which is also the maximum number of watches.
const PERIOD: u64 = 256;

/// The used times, in milliseconds of the period.
pub(super) struct Latency {
    start: Instant,
    taken: Mutex<BTreeSet<u64>>,
}

impl Latency {
    pub(super) fn new() -> Latency {
        Latency { start: Instant::now(), taken: Mutex::default() }
    }

    pub(super) fn around(self: &Arc<Latency>, inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(SlowTransport { inner, latency: self.clone() })
    }

    fn take(self: &Arc<Latency>) -> Slot {
        let mut taken = self.taken.lock();
        let millis = (0..PERIOD).find(|millis| !taken.contains(millis)).expect("not so many watches");
        taken.insert(millis);
        Slot { latency: self.clone(), millis }
    }
}

/// Given back when it is dropped.
struct Slot {
    latency: Arc<Latency>,
    millis: u64,
}

impl Slot {
    /// The delivery time of a frame that arrives now.
    fn due(&self) -> Instant {
        let now = u64::try_from(self.latency.start.elapsed().as_millis()).unwrap_or(0);
        let wait = (self.millis + PERIOD - now % PERIOD - 1) % PERIOD + 1;
        self.latency.start + Duration::from_millis(now + wait)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.latency.taken.lock().remove(&self.millis);
    }
}

struct SlowTransport {
    inner: Arc<dyn Transport>,
    latency: Arc<Latency>,
}

impl SlowTransport {
    async fn exchange(&self, request: Request<Bytes>) -> client::Result<Response<Body>> {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let response = self.inner.send(request).await?;
        if !watch || response.status() != 200 {
            return Ok(response);
        }
        let place = self.latency.take();
        let delayed = |inner| DelayedBody { inner, place, waiting: VecDeque::new(), timer: None, ended: false };
        Ok(response.map(|body| body.wrap(delayed)))
    }
}

impl Transport for SlowTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}

type Item = Option<Result<Frame<Bytes>, Error>>;

/// A stream whose frames are delivered with a delay.
struct DelayedBody {
    inner: Body,
    place: Slot,
    /// The received frames, with their delivery times.
    waiting: VecDeque<(Instant, Item)>,
    /// For the first of them.
    timer: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl DelayedBody {
    /// Receives all available frames: frames that arrive together are delivered together.
    fn take_in(&mut self, context: &mut Context<'_>) {
        while !self.ended {
            let Poll::Ready(item) = http_body::Body::poll_frame(Pin::new(&mut self.inner), context) else { return };
            self.ended = !matches!(item, Some(Ok(_)));
            self.waiting.push_back((self.place.due(), item));
        }
    }
}

impl http_body::Body for DelayedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Item> {
        self.take_in(context);
        let Some((due, _)) = self.waiting.front() else {
            return if self.ended { Poll::Ready(None) } else { Poll::Pending };
        };
        let due = *due;
        if Instant::now() < due {
            // A running timer is not replaced: a new one would fire after others of the same moment.
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.timer = None;
        Poll::Ready(self.waiting.pop_front().and_then(|(_, item)| item))
    }
}
