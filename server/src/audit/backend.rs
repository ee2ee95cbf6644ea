//! The destinations of events: a log and a webhook, each in its own mode. One path for both; they differ in how a batch
//! is delivered.

use std::io;
use std::sync::Arc;

use stdx::sync::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::batch::{self, Batch};
use super::log::Log;
use super::webhook::Webhook;
use super::{Counts, Format};

/// The behaviour of a request when a backend is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never waits; what does not fit is lost and counted.
    Batch,
    /// Waits for space, or for the webhook's response.
    Blocking,
    /// Waits until its first event is written; the request is rejected if that fails.
    BlockingStrict,
}

/// How large events and batches may be.
#[derive(Debug, Clone)]
pub struct Truncate {
    pub enabled: bool,
    pub max_event: usize,
    pub max_batch: usize,
}

impl Default for Truncate {
    fn default() -> Truncate {
        Truncate { enabled: false, max_event: 100 << 10, max_batch: 10 << 20 }
    }
}

/// The settings of one backend.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub mode: Mode,
    pub batch: Batch,
    pub truncate: Truncate,
}

impl Delivery {
    /// Upstream's default for the log backend.
    pub fn for_log() -> Delivery {
        Delivery { mode: Mode::Blocking, batch: Batch::for_log(), truncate: Truncate::default() }
    }

    /// Upstream's default for the webhook backend.
    pub fn for_webhook() -> Delivery {
        Delivery { mode: Mode::Batch, batch: Batch::for_webhook(), truncate: Truncate::default() }
    }

    /// The invalid settings, by flag.
    pub fn problems(&self, name: &str) -> Vec<String> {
        let mut problems = if self.mode == Mode::Batch { self.batch.problems(name) } else { Vec::new() };
        let Truncate { enabled, max_event, max_batch } = self.truncate;
        if enabled && (max_event == 0 || max_batch < max_event) {
            problems.push(format!(
                "--audit-{name}-truncate-max-event-size must be positive, and no more than the max-batch-size"
            ));
        }
        problems
    }
}

/// The parts of an event; the backend decides how they are written.
pub(crate) struct AuditEvent<'a> {
    /// The first of a request.
    pub begins: bool,
    pub head: &'a [u8],
    pub rest: &'a EventFields,
    /// The line of the old format.
    pub line: &'a dyn Fn() -> Vec<u8>,
}

/// The fields of an event after its head; a second time without the bodies if a backend may need a shorter event.
pub(crate) struct EventFields {
    pub full: Vec<u8>,
    pub brief: Option<Vec<u8>>,
}

/// The destination of batches.
pub enum Sink {
    Log(Arc<Log>),
    Webhook(Box<Webhook>, Arc<Counts>),
}

impl Sink {
    /// Delivers the events; lost events are counted in the metrics.
    pub(crate) async fn deliver(&self, events: &[Vec<u8>]) {
        match self {
            Sink::Log(log) => {
                for event in events {
                    log.add_later(&[event]).await;
                }
            }
            Sink::Webhook(webhook, counts) => {
                if webhook.send(events).await.is_err() {
                    counts.lost("webhook", events.len() as u64);
                }
            }
        }
    }

    /// Sends one event and waits for its delivery.
    async fn send_strictly(&self, event: Vec<u8>) -> io::Result<()> {
        match self {
            Sink::Log(log) => log.write(&[&event]).await,
            Sink::Webhook(webhook, _) => webhook.send(&[event]).await.map_err(io::Error::other),
        }
    }
}

pub(crate) struct Backend {
    name: &'static str,
    pub mode: Mode,
    pub format: Format,
    truncate: Truncate,
    sink: Arc<Sink>,
    /// The queue in batch mode.
    queue: Option<mpsc::Sender<Vec<u8>>>,
    /// Until the server starts it.
    idle: Mutex<Option<(Batch, mpsc::Receiver<Vec<u8>>)>>,
    counts: Arc<Counts>,
}

impl Backend {
    pub(super) fn new(
        name: &'static str,
        delivery: &Delivery,
        format: Format,
        sink: Sink,
        counts: &Arc<Counts>,
    ) -> Backend {
        let batches = delivery.mode == Mode::Batch;
        let (queue, events) = mpsc::channel(delivery.batch.buffer.max(1));
        Backend {
            name,
            mode: delivery.mode,
            format,
            truncate: delivery.truncate.clone(),
            sink: Arc::new(sink),
            queue: batches.then_some(queue),
            idle: Mutex::new(batches.then(|| (delivery.batch.clone(), events))),
            counts: counts.clone(),
        }
    }

    /// Begins to deliver batches, on the runtime of the caller.
    pub(super) fn start(&self, ending: &watch::Sender<bool>) -> Option<JoinHandle<()>> {
        let (batch, events) = self.idle.lock().take()?;
        let max_bytes = if self.truncate.enabled { self.truncate.max_batch } else { usize::MAX };
        Some(tokio::spawn(batch::run(batch, max_bytes, events, ending.subscribe(), self.sink.clone())))
    }

    /// Whether an event of this size is written without its bodies.
    pub(crate) fn shortens(&self, bytes: usize) -> bool {
        self.truncate.enabled && self.format == Format::Json && bytes > self.truncate.max_event
    }

    /// Offers an event to the backend. A returned event must be waited for: with `finish` or, at the beginning of a
    /// request, with `insist`.
    pub(super) fn offer(&self, event: &AuditEvent<'_>) -> Option<Vec<u8>> {
        let line;
        let pieces = match self.format {
            // A legacy line contains no bodies that could be omitted.
            Format::Legacy => {
                line = (event.line)();
                [line.as_slice(), b"", b""]
            }
            Format::Json => self.fit(event)?,
        };
        match (&self.queue, &*self.sink) {
            (Some(queue), _) => {
                if queue.try_send(pieces.concat()).is_err() {
                    self.counts.lost(self.name, 1);
                }
                None
            }
            (None, Sink::Log(log)) if !(event.begins && self.mode == Mode::BlockingStrict) && log.add(&pieces) => None,
            (None, _) => Some(pieces.concat()),
        }
    }

    /// The event, or its shorter form; None if even that is too large, which is counted.
    fn fit<'a>(&self, event: &AuditEvent<'a>) -> Option<[&'a [u8]; 3]> {
        let whole = |rest: &'a [u8]| [event.head, rest, b"}".as_slice()];
        let size = |rest: &[u8]| event.head.len() + rest.len() + 1;
        if !self.shortens(size(&event.rest.full)) {
            return Some(whole(&event.rest.full));
        }
        let brief = event.rest.brief.as_deref().filter(|brief| !self.shortens(size(brief)));
        if brief.is_none() {
            self.counts.lost("truncate", 1);
        }
        brief.map(whole)
    }

    pub(super) async fn finish(&self, event: Vec<u8>) {
        self.sink.deliver(&[event]).await;
    }

    /// The beginning of a request: in the strict mode it must arrive.
    pub(crate) async fn send_strictly(&self, event: Vec<u8>) -> io::Result<()> {
        if self.mode == Mode::BlockingStrict {
            return self.sink.send_strictly(event).await;
        }
        self.finish(event).await;
        Ok(())
    }

    /// Waits until what was handed over is written.
    pub(super) async fn flush(&self) {
        if let Sink::Log(log) = &*self.sink
            && let Err(error) = log.flush().await
        {
            tracing::error!(%error, "failed to write the end of the audit log");
        }
    }

    pub(super) fn close(&self) {
        if let Sink::Log(log) = &*self.sink {
            log.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_work_are_named() {
        let mut delivery = Delivery::for_webhook();
        assert!(delivery.problems("webhook").is_empty());
        delivery.truncate = Truncate { enabled: true, max_event: 10, max_batch: 5 };
        assert!(delivery.problems("webhook")[0].starts_with("--audit-webhook-truncate-max-event-size must"));
        // Settings that a mode does not use are not validated.
        let unused = Delivery { mode: Mode::Blocking, ..Delivery::for_log() };
        assert!(Delivery { batch: Batch { max_size: 0, ..Batch::for_log() }, ..unused }.problems("log").is_empty());
    }
}
