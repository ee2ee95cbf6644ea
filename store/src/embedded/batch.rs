//! The writes of one batch: checked one after the other, acknowledged together.

use super::format::{Builder, Mark, Record};
use super::plan::{self, Head};
use super::queue::Reply;
use crate::{Committed, Durability, Error, Event, Op, Result, Write};
use std::time::Duration;

/// A caller, and its result.
type PendingReply = (Reply<Vec<Committed>>, Result<Vec<Committed>>);

pub(crate) struct Batch {
    /// The head including every write of the batch.
    pub head: Head,
    pub events: Vec<Event>,
    /// A caller waits for the disk.
    pub durable: bool,
    /// A caller was promised that the disk follows soon.
    pub relaxed: bool,
    /// The builder's position before the batch.
    mark: Mark,
    answers: Vec<PendingReply>,
}

impl Batch {
    pub(super) fn new(head: &Head, builder: &Builder) -> Self {
        let (head, mark) = (head.clone(), builder.mark());
        Self { head, events: Vec::new(), durable: false, relaxed: false, mark, answers: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        writes: Vec<Write>,
        reply: Reply<Vec<Committed>>,
        builder: &mut Builder,
        now: Duration,
        max_value_bytes: usize,
    ) {
        let checked = plan::check(&self.head, &writes, max_value_bytes);
        let answer = checked.map(|()| writes.into_iter().map(|write| self.write(write, builder, now)).collect());
        self.answers.push((reply, answer));
    }

    /// An expiry that is lost in a crash is repeated: it need not wait for the disk, nor trigger a write.
    pub(super) fn expire(&mut self, key: String, builder: &mut Builder, now: Duration) {
        if let Some(event) = plan::apply(&mut self.head, key, Op::Delete, None, now) {
            builder.push_record(&record(&event, &[], now, false));
            self.events.push(event);
        }
    }

    fn write(&mut self, write: Write, builder: &mut Builder, now: Duration) -> Committed {
        let event = plan::apply(&mut self.head, write.key, write.op, write.ttl, now);
        let committed = plan::committed(&self.head, event.as_ref());
        match write.durability {
            // Also if nothing changes: the state that makes a deletion unnecessary may be a relaxed write that is
            // not on disk yet.
            Durability::Durable => self.durable = true,
            Durability::Relaxed => self.relaxed |= event.is_some(),
        }
        let Some(event) = event else { return committed };
        builder.push_record(&record(&event, &write.cause, now, write.durability == Durability::Relaxed));
        self.events.push(event);
        committed
    }

    pub(super) fn answer(self) {
        // The caller may have been dropped.
        self.answers.into_iter().for_each(|(reply, answer)| drop(reply.send(answer)));
    }

    /// Reverts every write. Rejected callers get the failure as well: the conflicting entry may have been one of this
    /// batch.
    pub(super) fn fail(self, error: &Error, builder: &mut Builder) {
        builder.rewind(self.mark);
        for (reply, _) in self.answers {
            let _ = reply.send(Err(copy_error(error)));
        }
    }
}

fn record<'a>(event: &'a Event, cause: &'a [u8], now: Duration, is_relaxed: bool) -> Record<'a> {
    let time = now.as_millis() as u64;
    match &event.entry {
        Some(entry) => Record::of(entry, cause, time, is_relaxed),
        None => Record { revision: event.revision, key: &event.key, value: None, expires: 0, cause, time, is_relaxed },
    }
}

/// A copy of the error for another caller.
pub(crate) fn copy_error(error: &Error) -> Error {
    let copy = |source: &std::io::Error| match source.raw_os_error() {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::new(source.kind(), source.to_string()),
    };
    match error {
        Error::Full(source) => Error::Full(copy(source)),
        Error::Io { what, source } => Error::Io { what: what.clone(), source: copy(source) },
        other => Error::Unavailable(other.to_string()),
    }
}
