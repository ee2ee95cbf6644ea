//! The request queue of the writer. The writer takes all pending requests at once, which is the group commit.

use std::collections::VecDeque;
use std::time::Duration;

use stdx::sync::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::compaction::CompactionResult;
use crate::{Committed, Error, Result, Write};

/// Each pending request is a waiting caller, so this limit is reached only by a flood.
const MAX_WAITING: usize = 100_000;

pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

pub(crate) enum Request {
    Commit { writes: Vec<Write>, reply: Reply<Vec<Committed>> },
    Compacted(CompactionResult),
    Close(Option<Reply<()>>),
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
struct QueueState {
    requests: VecDeque<Request>,
    /// No requests are accepted any more.
    closed: bool,
    /// The writer must check the clock.
    woken: bool,
}

impl Queue {
    pub(super) fn push(&self, request: Request) -> Result<()> {
        let mut waiting = self.lock_state();
        if waiting.closed {
            return Err(Error::Closed);
        }
        if waiting.requests.len() >= MAX_WAITING {
            return Err(Error::Unavailable("too many pending writes".to_owned()));
        }
        waiting.closed = matches!(request, Request::Close(_));
        waiting.requests.push_back(request);
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn wake_writer(&self) {
        self.lock_state().woken = true;
        self.wake.notify_one();
    }

    /// Moves all pending requests to `into`. Sleeps until there is a request, a nudge or the timeout; without a
    /// timeout indefinitely.
    pub(super) fn take(&self, into: &mut VecDeque<Request>, sleep: Option<Duration>) {
        let idle = |waiting: &mut QueueState| waiting.requests.is_empty() && !waiting.woken;
        let waiting = self.lock_state();
        let mut waiting = match sleep {
            None => self.wake.wait_while(waiting, idle),
            Some(time) => self.wake.wait_timeout_while(waiting, time, idle),
        };
        waiting.woken = false;
        into.append(&mut waiting.requests);
    }

    /// Whether a writer without a thread has work.
    pub(crate) fn has_work(&self) -> bool {
        let waiting = self.lock_state();
        !waiting.requests.is_empty() || waiting.woken
    }

    /// The writer has ended: the replies of waiting callers are dropped.
    pub(crate) fn drop_requests(&self) {
        let requests = {
            let mut waiting = self.lock_state();
            waiting.closed = true;
            std::mem::take(&mut waiting.requests)
        };
        drop(requests);
    }

    fn lock_state(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock()
    }
}
