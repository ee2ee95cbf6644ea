//! Faults of requests and watches, from a seed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use api::status::Status;
use bytes::Bytes;
use client::{Body, Error, ResponseFuture, Transport};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::Full;
use stdx::sync::Mutex;
use tokio::time::Sleep;

use super::Random;

/// The frequency of each fault, per thousand requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// 429 and 500.
    pub refused: u64,
    /// 409, for writes.
    pub conflict: u64,
    /// The request is not executed, and gets no response.
    pub dropped: u64,
    /// The request is executed, but the response is lost.
    pub lost: u64,
    /// The request waits for a long time, and then gets no response.
    pub hangs: u64,
}

impl Rates {
    pub(crate) const USUAL: Rates = Rates { refused: 15, conflict: 15, dropped: 10, lost: 10, hangs: 3 };
}

/// The longest life of a watch while there are faults.
const WATCH_SECONDS: u64 = 300;
const HANG: Duration = Duration::from_secs(45);

/// Faults of the transport, from a seed.
pub struct Faults {
    on: AtomicBool,
    rates: Mutex<Rates>,
    random: Mutex<Random>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Answer(u16),
    Drop,
    Lose,
    Hang,
}

impl Faults {
    /// Faults that are off.
    pub fn new(seed: u64) -> Faults {
        Faults { on: AtomicBool::new(false), rates: Mutex::new(Rates::USUAL), random: Mutex::new(Random::new(!seed)) }
    }

    /// Turns the faults on or off.
    pub fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// A transport with faults.
    pub fn around(self: &Arc<Faults>, inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(FaultyTransport { inner, faults: self.clone() })
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn next(&self, method: &Method) -> Option<Fault> {
        if !self.is_on() {
            return None;
        }
        let rates = *self.rates.lock();
        let random = self.random.lock();
        let conflict = if *method == Method::GET { 0 } else { rates.conflict };
        let kinds = [
            (rates.refused, Fault::Answer(if random.below(2) == 0 { 429 } else { 500 })),
            (conflict, Fault::Answer(409)),
            (rates.dropped, Fault::Drop),
            (rates.lost, Fault::Lose),
            (rates.hangs, Fault::Hang),
        ];
        let mut number = random.below(1000);
        for (rate, fault) in kinds {
            if number < rate {
                return Some(fault);
            }
            number -= rate;
        }
        None
    }

    /// After how long a watch that begins now is cut.
    fn cut(&self) -> Option<Duration> {
        let random = self.random.lock();
        self.is_on().then(|| random.seconds(1, WATCH_SECONDS))
    }
}

struct FaultyTransport {
    inner: Arc<dyn Transport>,
    faults: Arc<Faults>,
}

impl FaultyTransport {
    async fn exchange(&self, request: Request<Bytes>) -> client::Result<Response<Body>> {
        let gone = || Error::Transport("the connection is gone".to_string());
        match self.faults.next(request.method()) {
            None => self.pass(request).await,
            Some(Fault::Answer(code)) => Ok(refusal(code)),
            Some(Fault::Drop) => Err(gone()),
            Some(Fault::Lose) => {
                self.inner.send(request).await?;
                Err(gone())
            }
            Some(Fault::Hang) => {
                tokio::time::sleep(HANG).await;
                Err(gone())
            }
        }
    }

    async fn pass(&self, request: Request<Bytes>) -> client::Result<Response<Body>> {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let response = self.inner.send(request).await?;
        let Some(after) = self.faults.cut().filter(|_| watch) else { return Ok(response) };
        let timer = Box::pin(tokio::time::sleep(after));
        Ok(response.map(|body| body.wrap(|inner| CutBody { inner, timer })))
    }
}

impl Transport for FaultyTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}

fn refusal(code: u16) -> Response<Body> {
    let status = match code {
        409 => Status::new(409, "Conflict", "another client was faster"),
        429 => Status::new(429, "TooManyRequests", "too many requests"),
        _ => Status::new(500, "InternalError", "something is broken"),
    };
    let body = Full::new(Bytes::from(api::json::encode(&status.to_tree(), None)));
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
    response
}

/// A stream that breaks at its time.
struct CutBody {
    inner: Body,
    timer: Pin<Box<Sleep>>,
}

impl http_body::Body for CutBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Error::Transport("the stream is cut".to_string()))));
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }
}
