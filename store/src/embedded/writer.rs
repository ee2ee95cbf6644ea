//! The writer. It takes pending requests, checks them, makes them durable in one batch, publishes and acknowledges
//! them, and sleeps until there are more: when idle it neither wakes nor writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Config;
use super::archive::Archive;
use super::batch::{Batch, copy_error};
use super::compaction::{self, CompactionHandle, CompactionResult};
use super::expiries::Expiries;
use super::format::{Builder, record_size};
use super::log::{AppendFailure, Log};
use super::plan::Head;
use super::queue::{Queue, Reply, Request};
use crate::feed::Feed;
use crate::{Error, Event, Result, Sink};

/// The maximum batch size; further requests go into the next.
const BATCH_BYTES: usize = 16 << 20;
/// The maximum size of relaxed writes that are not on disk yet.
const RELAXED_BYTES: usize = 4 << 20;
const EXPIRIES_PER_BATCH: usize = 1000;
/// The retry interval of relaxed writes, for which no caller waits.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Writer {
    pub config: Config,
    pub queue: Arc<Queue>,
    pub feed: Arc<Feed>,
    pub sink: Arc<dyn Sink>,
    pub log: Log,
    pub head: Head,
    /// Records that are not on disk. Between two steps they are all relaxed, and visible.
    pub builder: Builder,
    pub expiries: Expiries,
    /// The size of the records in a state file written now.
    pub live_bytes: u64,
    pub waiting: VecDeque<Request>,
    /// When relaxed writes must be on disk.
    pub flush_at: Option<Instant>,
    /// The last batch failed, so that nothing is visible before it is on disk; the time of the next own attempt.
    pub refused: Option<Instant>,
    /// A sync has failed: nothing is written any more.
    pub broken: Option<Error>,
    pub compaction: Option<CompactionHandle>,
    pub archive: Arc<Archive>,
    /// A log below this size is not compacted; increased after a failed attempt.
    pub compact_above: u64,
    /// Held until the last byte is written.
    pub lock: Box<dyn Send + Sync>,
}

impl Writer {
    pub(super) fn run(mut self) {
        let _guard =
            PanicGuard { queue: self.queue.clone(), feed: self.feed.clone(), fatal: self.config.fatal.clone() };
        loop {
            let sleep = self.sleep();
            self.queue.take(&mut self.waiting, sleep);
            if let Some(reply) = self.step() {
                return self.close(reply);
            }
        }
    }

    /// Everything that can be done without waiting, for a writer without a thread.
    pub(super) fn run_pending(&mut self) -> Option<Option<Reply<()>>> {
        self.queue.take(&mut self.waiting, Some(Duration::ZERO));
        loop {
            let close = self.step();
            let works = self.refused.is_none() && self.broken.is_none();
            let due = works && self.next_expiry() == Some(Duration::ZERO);
            if close.is_some() || (self.waiting.is_empty() && !due) {
                return close;
            }
        }
    }

    /// The time until the next expiry; `None` if there is none, or if the clock will notify.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.expiries.earliest().and_then(|at| self.time_until(at))
    }

    /// How long there is nothing to do; `None` until the next request.
    fn sleep(&self) -> Option<Duration> {
        if !self.waiting.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let retry = self.refused.map(|until| until.saturating_duration_since(now));
        let flush = self.flush_at.map(|at| at.saturating_duration_since(now));
        let expiry = self.next_expiry();
        let nearest = [flush, expiry].into_iter().flatten().min()?;
        Some(nearest.max(retry.unwrap_or_default()))
    }

    /// A manual clock notifies the writer: the duration is not known.
    fn time_until(&self, at: Duration) -> Option<Duration> {
        if at <= self.config.clock.since_epoch() { Some(Duration::ZERO) } else { self.config.clock.sleep_until(at) }
    }

    /// One batch. Returns the close request, if there was one.
    fn step(&mut self) -> Option<Option<Reply<()>>> {
        let mut batch = Batch::new(&self.head, &self.builder);
        let mut close = None;
        while close.is_none() && self.builder.len() < BATCH_BYTES {
            match self.waiting.pop_front() {
                Some(Request::Commit { writes, reply }) => self.add_to_batch(&mut batch, writes, reply),
                Some(Request::Compacted(outcome)) => self.end_compaction(outcome),
                Some(Request::Close(reply)) => close = Some(reply),
                None => break,
            }
        }
        self.expire(&mut batch);
        self.commit_batch(batch);
        if close.is_none() {
            self.compact();
        }
        close
    }

    fn add_to_batch(&mut self, batch: &mut Batch, writes: Vec<crate::Write>, reply: Reply<Vec<crate::Committed>>) {
        if let Some(error) = &self.broken {
            let _ = reply.send(Err(copy_error(error)));
            return;
        }
        let now = self.config.clock.since_epoch();
        batch.add(writes, reply, &mut self.builder, now, self.config.max_value_bytes);
    }

    fn expire(&mut self, batch: &mut Batch) {
        let waits = self.refused.is_some_and(|until| Instant::now() < until);
        if waits || self.broken.is_some() || self.expiries.earliest().is_none() {
            return;
        }
        let now = self.config.clock.since_epoch();
        for key in self.expiries.due(now, EXPIRIES_PER_BATCH) {
            // The head may have changed within this batch: then the expiry is not of this entry.
            let expires = batch.head.entries.get(&key).is_some_and(|entry| entry.expires <= now.as_secs());
            if expires && batch.head.entries.get(&key).is_some_and(|entry| entry.expires != 0) {
                batch.expire(key, &mut self.builder, now);
            }
        }
    }

    /// Durable first, then visible, then acknowledged, then watchers: an acknowledged write can be read everywhere.
    fn commit_batch(&mut self, batch: Batch) {
        if self.needs_disk(&batch)
            && let Err(error) = self.write(&batch)
        {
            return batch.fail(&error, &mut self.builder);
        }
        if batch.relaxed && !self.builder.is_empty() {
            self.flush_at.get_or_insert_with(|| Instant::now() + self.config.relaxed_delay);
        }
        if batch.events.is_empty() {
            return batch.answer();
        }
        self.head = batch.head.clone();
        batch.events.iter().for_each(|event| self.follow(event));
        self.feed.publish(self.head.entries.clone(), self.head.revision, &batch.events);
        self.sink.publish(&batch.events);
        batch.answer();
        self.feed.wake();
    }

    fn needs_disk(&self, batch: &Batch) -> bool {
        if self.builder.is_empty() || self.broken.is_some() {
            return false;
        }
        let shows_unreserved = batch.head.revision > self.log.reserved();
        let flush = self.flush_at.is_some_and(|at| at <= Instant::now());
        let full = self.builder.len() > RELAXED_BYTES;
        batch.durable || shows_unreserved || flush || full || self.refused.is_some()
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        let last = batch.head.revision;
        // Only writes that are visible before they are on disk need a reservation.
        let reserve = if batch.durable { 0 } else { self.config.reserve };
        match self.log.commit(&mut self.builder, last, last + reserve) {
            Ok(()) => {
                self.builder.clear();
                (self.flush_at, self.refused) = (None, None);
                Ok(())
            }
            Err(AppendFailure::Refused(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "failed to commit batch");
                self.refused = Some(Instant::now() + RETRY);
                Err(error)
            }
            Err(AppendFailure::Fatal(error)) => Err(self.end(error)),
        }
    }

    /// The state of the disk is unknown: only a restart can read it.
    fn end(&mut self, error: Error) -> Error {
        (self.config.fatal)(&format!("store failed, cannot continue: {}", with_source(&error)));
        self.flush_at = None;
        self.broken = Some(copy_error(&error));
        error
    }

    fn follow(&mut self, event: &Event) {
        self.expiries.follow(event);
        self.live_bytes += event.entry.as_ref().map_or(0, |entry| record_size(entry));
        self.live_bytes -= event.previous.as_ref().map_or(0, |entry| record_size(entry));
    }

    /// Starts a compaction once there is more garbage than data.
    fn compact(&mut self) {
        let bytes = self.log.bytes();
        let quiet = self.compaction.is_none() && self.builder.is_empty() && self.broken.is_none();
        if !quiet || bytes < self.compact_above || bytes < 2 * self.live_bytes {
            return;
        }
        let (entries, compacted) = (self.head.entries.clone(), self.feed.compacted());
        match compaction::start(&mut self.log, entries, compacted, self.archive.clone(), self.queue.clone()) {
            Ok(running) => self.compaction = Some(running),
            Err(error) => self.delay_compaction(&error),
        }
    }

    fn end_compaction(&mut self, outcome: CompactionResult) {
        self.compaction = None;
        match outcome.result {
            Ok(bytes) => {
                self.log.compacted(outcome.replaced, bytes);
                self.compact_above = self.config.compact_bytes;
            }
            Err(error) => self.delay_compaction(&error),
        }
    }

    /// The old files are intact and kept; the next attempt waits until there is more to gain.
    fn delay_compaction(&mut self, error: &Error) {
        tracing::warn!(error = error as &dyn std::error::Error, "failed to compact log");
        self.compact_above = self.log.bytes() + self.config.compact_bytes;
    }

    pub(super) fn close(mut self, reply: Option<Reply<()>>) {
        self.compaction = None;
        let result = self.flush_and_end();
        self.feed.close();
        self.queue.drop_requests();
        // The caller may reopen the directory.
        drop(self.lock);
        if let Some(reply) = reply {
            let _ = reply.send(result);
        }
    }

    fn flush_and_end(&mut self) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(copy_error(error));
        }
        if !self.builder.is_empty() {
            let batch = Batch::new(&self.head, &self.builder);
            self.write(&batch)?;
        }
        match self.log.close(self.feed.compacted(), self.head.revision) {
            Ok(()) => Ok(()),
            Err(AppendFailure::Refused(error)) => Err(error),
            Err(AppendFailure::Fatal(error)) => Err(self.end(error)),
        }
    }
}

fn with_source(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// After a panic of the writer the head is unknown: the process ends, as after a failed sync.
struct PanicGuard {
    queue: Arc<Queue>,
    feed: Arc<Feed>,
    fatal: super::Fatal,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.fatal)("the store's writer has panicked");
            self.queue.drop_requests();
            self.feed.close();
        }
    }
}
