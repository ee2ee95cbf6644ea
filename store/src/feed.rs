//! The published state for readers: the entries of one revision, the newest events, and the waiting watchers. Both
//! engines publish here, only after writes are safe to show.

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::entries::Entries;
use crate::history::{History, HistoryLimits};
use crate::{BoxFuture, Entry, Error, Event, Page, Range, Result, Revision, Watch, WatchResponse};

/// The maximum number of events in one notice.
const EVENTS_PER_NOTICE: usize = 1000;

pub(crate) struct Feed {
    view: Mutex<View>,
    /// The newest published revision; closed when the engine stops.
    newest: watch::Sender<Revision>,
    progress_interval: Duration,
}

struct View {
    entries: Entries,
    revision: Revision,
    history: History,
    /// History up to here was compacted by request, rather than dropped because of its limits.
    compacted: Revision,
    closed: bool,
}

impl Feed {
    pub(crate) fn new(
        entries: Entries,
        revision: Revision,
        history: History,
        progress_interval: Duration,
    ) -> Arc<Self> {
        let compacted = history.floor();
        let view = View { entries, revision, history, compacted, closed: false };
        let newest = watch::Sender::new(revision);
        Arc::new(Self { view: Mutex::new(view), newest, progress_interval })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.lock_state().revision
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.lock_state().history.floor()
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.lock_state().entries.get(key).cloned()
    }

    pub(crate) fn state(&self) -> (Entries, Revision) {
        let view = self.lock_state();
        (view.entries.clone(), view.revision)
    }

    /// Publishes a new state with its events. Watchers are woken by `wake`, after the writers were acknowledged.
    pub(crate) fn publish(&self, entries: Entries, revision: Revision, events: &[Event]) {
        // The old state is dropped after the lock is released.
        let _old = {
            let mut view = self.lock_state();
            events.iter().for_each(|event| view.history.push(event.clone()));
            view.revision = view.revision.max(revision);
            std::mem::replace(&mut view.entries, entries)
        };
    }

    pub(crate) fn wake(&self) {
        let revision = self.revision();
        self.newest.send_replace(revision);
    }

    /// Restarts the history after a gap without events.
    pub(crate) fn restart_history(&self, limits: HistoryLimits, floor: Revision) {
        self.lock_state().history = History::new(limits, floor);
    }

    pub(crate) fn compact(&self, revision: Revision) -> Result<()> {
        let mut view = self.lock_state();
        if revision > view.revision {
            return Err(Error::Future { asked: revision, newest: view.revision });
        }
        view.history.compact(revision);
        view.compacted = view.compacted.max(revision);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.lock_state().closed = true;
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock_state().closed
    }

    /// Waits until watchers were woken for this revision, which implies that the sink has it.
    pub(crate) async fn wait_for_revision(&self, revision: Revision) -> Result<()> {
        let mut newest = self.newest.subscribe();
        loop {
            if *newest.borrow_and_update() >= revision {
                return Ok(());
            }
            if self.is_closed() {
                return Err(Error::Closed);
            }
            newest.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    pub(crate) fn range(&self, range: &Range) -> Result<Page> {
        let view = self.lock_state();
        let asked = range.revision;
        if asked > view.revision {
            return Err(Error::Future { asked, newest: view.revision });
        }
        if asked == 0 || asked == view.revision {
            let (entries, revision) = (view.entries.clone(), view.revision);
            drop(view);
            return Ok(page(entries.range(&range.start, &range.end).cloned(), range.limit, revision));
        }
        if asked < view.history.floor() {
            return Err(Error::Compacted { asked, oldest: view.history.floor() });
        }
        let undo = view.history.entries_before(asked, &range.start, &range.end);
        let entries = view.entries.clone();
        drop(view);
        let unchanged = entries.range(&range.start, &range.end).filter(|entry| !undo.contains_key(&entry.key));
        let then = merge(unchanged.cloned(), undo.values().flatten().cloned());
        Ok(page(then.into_iter(), range.limit, asked))
    }

    pub(crate) fn watch(self: &Arc<Self>, prefix: &str, after: Revision) -> Result<Box<dyn Watch>> {
        let view = self.lock_state();
        if view.closed {
            return Err(Error::Closed);
        }
        if after < view.history.floor() {
            return Err(Error::Compacted { asked: after, oldest: view.history.floor() });
        }
        if after > view.revision {
            return Err(Error::Future { asked: after, newest: view.revision });
        }
        Ok(Box::new(FeedWatch {
            feed: self.clone(),
            newest: self.newest.subscribe(),
            prefix: prefix.to_owned(),
            cursor: after,
            reported: None,
            due: None,
        }))
    }

    /// A panic while the view is held cannot leave it inconsistent: a panicking publisher ends the process.
    fn lock_state(&self) -> MutexGuard<'_, View> {
        self.view.lock()
    }
}

/// Merges two sorted runs with disjoint keys.
fn merge(left: impl Iterator<Item = Arc<Entry>>, right: impl Iterator<Item = Arc<Entry>>) -> Vec<Arc<Entry>> {
    let mut all: Vec<_> = left.chain(right).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

pub(crate) fn page(mut entries: impl Iterator<Item = Arc<Entry>>, limit: usize, revision: Revision) -> Page {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let taken = entries.by_ref().take(limit).collect();
    Page { entries: taken, revision, remaining: entries.count() as u64 }
}

/// A cursor into the shared history: a sleeping watcher costs nothing.
struct FeedWatch {
    feed: Arc<Feed>,
    newest: watch::Receiver<Revision>,
    prefix: String,
    /// Every event up to here was delivered or does not match.
    cursor: Revision,
    /// The newest reported revision; None initially: the watcher is notified at once when it has caught up.
    reported: Option<Revision>,
    /// When a revision without matching events must be reported.
    due: Option<Instant>,
}

impl Watch for FeedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<WatchResponse>> {
        Box::pin(async move {
            loop {
                self.newest.mark_unchanged();
                let events = self.collect()?;
                if !events.is_empty() {
                    self.reported = Some(last_revision(&events));
                    self.due = None;
                    return Ok(WatchResponse::Events(events));
                }
                if let Some(progress) = self.wait().await? {
                    return Ok(progress);
                }
            }
        })
    }
}

impl FeedWatch {
    fn collect(&mut self) -> Result<Vec<Event>> {
        let view = self.feed.lock_state();
        let (asked, oldest) = (self.cursor, view.history.floor());
        if asked < view.compacted {
            return Err(Error::Compacted { asked, oldest });
        }
        if asked < oldest {
            return Err(Error::Lagging);
        }
        let mut events = Vec::new();
        let mut cursor = view.revision;
        for event in view.history.after(asked).filter(|event| event.key.starts_with(&self.prefix)) {
            // Events of one revision stay together: the cursor cannot be between them.
            if events.len() >= EVENTS_PER_NOTICE && event.revision > last_revision(&events) {
                cursor = last_revision(&events);
                break;
            }
            events.push(event.clone());
        }
        if events.is_empty() && view.closed {
            return Err(Error::Closed);
        }
        self.cursor = cursor;
        Ok(events)
    }

    /// Waits for news. A revision without matching events is reported after a while, and at once after the start;
    /// with nothing to report no timer runs.
    async fn wait(&mut self) -> Result<Option<WatchResponse>> {
        let Some(reported) = self.reported else {
            return Ok(Some(self.progress()));
        };
        if reported >= self.cursor {
            self.newest.changed().await.map_err(|_| Error::Closed)?;
            return Ok(None);
        }
        let interval = self.feed.progress_interval;
        let due = *self.due.get_or_insert_with(|| Instant::now() + interval);
        if due <= Instant::now() {
            return Ok(Some(self.progress()));
        }
        match tokio::time::timeout_at(due, self.newest.changed()).await {
            Ok(changed) => changed.map(|()| None).map_err(|_| Error::Closed),
            Err(_elapsed) => Ok(Some(self.progress())),
        }
    }

    fn progress(&mut self) -> WatchResponse {
        self.reported = Some(self.cursor);
        self.due = None;
        WatchResponse::Progress(self.cursor)
    }
}

fn last_revision(events: &[Event]) -> Revision {
    events.last().map_or(0, |event| event.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn revisions_are_reached_after_publishing() {
        let limits = HistoryLimits::default();
        let feed = Feed::new(Entries::default(), 1, History::new(limits, 1), Duration::from_secs(1));
        let soon = |revision| tokio::time::timeout(Duration::from_millis(1), feed.wait_for_revision(revision));
        assert!(soon(1).await.is_ok(), "it starts there");
        feed.publish(Entries::default(), 2, &[]);
        assert!(soon(2).await.is_err(), "the sink has not received it yet");
        feed.wake();
        assert!(matches!(soon(2).await, Ok(Ok(()))));
        feed.close();
        assert!(matches!(soon(3).await, Ok(Err(Error::Closed))));
    }
}
