//! The watch. It covers all keys of etcd, so that every revision has an event, even if other clients write outside
//! our prefix: a revision is complete because it was observed, never because of a progress report, which old versions
//! of etcd send too early.

use std::sync::Arc;
use std::time::Duration;

use stdx::backoff::Backoff;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;

use super::client::{Client, Watcher, failed, is_compacted};
use super::keys::{END, Keys};
use super::leases::Leases;
use super::proto;
use crate::entries::Entries;
use crate::feed::Feed;
use crate::{Event, HistoryLimits, Result, Revision, Sink};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The page size of a full read.
const PAGE: i64 = 2000;

pub(crate) struct Pump {
    pub client: Client,
    pub keys: Arc<Keys>,
    pub leases: Arc<Leases>,
    pub feed: Arc<Feed>,
    pub sink: Arc<dyn Sink>,
    pub limits: HistoryLimits,
    /// The entries that were published to the sink, up to `revision`.
    pub entries: Entries,
    pub revision: Revision,
    /// The newest revision that a reader or a writer misses.
    pub missing: watch::Receiver<Revision>,
}

/// Why a watch ended.
enum WatchEnd {
    /// Events that were not received are compacted.
    Compacted,
    DisconnectReason(DisconnectReason),
}

/// Why the connection to the watch is lost.
#[derive(Debug, thiserror::Error)]
enum DisconnectReason {
    #[error("etcd ended the watch")]
    Ended,
    #[error("{0}")]
    Canceled(String),
    #[error("the watch is behind etcd's revision {0} and receives nothing")]
    Stalled(Revision),
    #[error(transparent)]
    Store(#[from] crate::Error),
}

impl Pump {
    pub(super) async fn run(mut self, mut closed: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            _ = closed.wait_for(|&closed| closed) => {}
            () = self.pump() => {}
        }
    }

    /// Restarts an ended watch where it stopped, forever.
    async fn pump(&mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let before = self.revision;
            let end = match self.follow().await {
                WatchEnd::Compacted => self.resync().await.err().map(DisconnectReason::Store),
                WatchEnd::DisconnectReason(error) => Some(error),
            };
            if self.revision > before {
                backoff.reset();
            }
            if let Some(error) = end {
                tracing::warn!(reason = %error, "etcd watch ended, reopening it");
                tokio::time::sleep(backoff.next_pause()).await;
            }
        }
    }

    async fn follow(&mut self) -> WatchEnd {
        let (_requests, mut watcher) = match self.open().await {
            Ok(watch) => watch,
            Err(status) => return watch_end(&status),
        };
        let end = self.receive(&mut watcher).await;
        if let WatchEnd::DisconnectReason(_) = end {
            self.client.leave(&watcher);
        }
        end
    }

    async fn receive(&mut self, watcher: &mut Watcher) -> WatchEnd {
        let mut fragments = Vec::new();
        let lost = |reason| WatchEnd::DisconnectReason(reason);
        let opened = Instant::now();
        loop {
            let message = tokio::select! {
                biased;
                message = watcher.responses.message() => message,
                Ok(()) = self.missing.changed() => {
                    let missing = *self.missing.borrow_and_update();
                    // Readers that have waited since before this watch may report late.
                    if missing > self.revision && opened.elapsed() >= super::WATCH_DELAY {
                        return lost(DisconnectReason::Stalled(missing));
                    }
                    continue;
                }
            };
            let response = match message {
                Ok(Some(response)) => response,
                Ok(None) => return lost(DisconnectReason::Ended),
                Err(status) => return watch_end(&status),
            };
            if response.compact_revision > 0 {
                return WatchEnd::Compacted;
            }
            if response.canceled {
                return lost(DisconnectReason::Canceled(response.cancel_reason));
            }
            fragments.extend(response.events);
            if !response.fragment && !fragments.is_empty() {
                self.publish(std::mem::take(&mut fragments));
            }
        }
    }

    async fn open(&self) -> Result<(mpsc::Sender<proto::WatchRequest>, Watcher), Status> {
        let create = proto::WatchCreateRequest {
            key: END.to_vec(),
            range_end: END.to_vec(),
            start_revision: self.revision as i64 + 1,
            prev_kv: true,
            fragment: true,
        };
        let (sender, receiver) = mpsc::channel(1);
        let request = proto::WatchRequest { create_request: Some(create) };
        // The channel is new and has a free slot.
        let _ = sender.try_send(request);
        Ok((sender, self.client.watch(receiver).await?))
    }

    fn publish(&mut self, changes: Vec<proto::Event>) {
        let newest = changes.iter().filter_map(|change| change.kv.as_ref()).map(|kv| kv.mod_revision).max();
        self.revision = self.revision.max(newest.unwrap_or(0) as u64);
        let events: Vec<Event> =
            changes.into_iter().filter_map(|change| self.keys.event(change, &self.leases)).collect();
        for event in &events {
            match &event.entry {
                Some(entry) => drop(self.entries.insert(entry.clone())),
                None => drop(self.entries.remove(&event.key)),
            }
        }
        self.publish_events(&events, &events);
    }

    fn publish_events(&self, history: &[Event], events: &[Event]) {
        self.feed.publish(self.entries.clone(), self.revision, history);
        match events {
            [] => self.sink.progress(self.revision),
            events => self.sink.publish(events),
        }
        self.feed.wake();
    }

    /// Events are lost: reads everything, and publishes the differences.
    async fn resync(&mut self) -> Result<()> {
        let (entries, revision) = list(&self.client, &self.keys, &self.leases).await?;
        let events = difference(&self.entries, &entries, revision);
        (self.entries, self.revision) = (entries, revision);
        self.feed.restart_history(self.limits, revision);
        // Watchers must restart: the events in between are in no history.
        self.publish_events(&[], &events);
        Ok(())
    }
}

fn watch_end(status: &Status) -> WatchEnd {
    if is_compacted(status) { WatchEnd::Compacted } else { WatchEnd::DisconnectReason(failed(status).into()) }
}

/// Puts have their revisions; the time of deletions is unknown, so they have the revision of the read.
fn difference(before: &Entries, after: &Entries, revision: Revision) -> Vec<Event> {
    let put = after.iter().filter_map(|entry| {
        let previous = before.get(&entry.key).cloned();
        let same = previous.as_ref().is_some_and(|previous| previous.revision == entry.revision);
        (!same).then(|| Event {
            revision: entry.revision,
            key: entry.key.clone(),
            entry: Some(entry.clone()),
            previous,
        })
    });
    let deleted = before.iter().filter(|entry| after.get(&entry.key).is_none());
    let deleted =
        deleted.map(|entry| Event { revision, key: entry.key.clone(), entry: None, previous: Some(entry.clone()) });
    let mut events: Vec<_> = put.chain(deleted).collect();
    events.sort_by_key(|event| event.revision);
    events
}

/// Every entry under the prefix at one revision.
pub(crate) async fn list(client: &Client, keys: &Keys, leases: &Leases) -> Result<(Entries, Revision)> {
    let (kvs, revision) = list_raw(client, keys, &|_| {}).await?;
    let mut entries = Entries::default();
    for entry in kvs.into_iter().filter_map(|kv| keys.entry(kv, leases)) {
        entries.insert(entry);
    }
    Ok((entries, revision))
}

/// The same as etcd has it. `progress` is called with the number of keys after each page.
pub(super) async fn list_raw(
    client: &Client,
    keys: &Keys,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<(Vec<proto::KeyValue>, Revision)> {
    let mut kvs = Vec::new();
    let mut revision = 0;
    let mut start = keys.full("");
    // An empty key has another meaning for etcd.
    if start.is_empty() {
        start = END.to_vec();
    }
    loop {
        let range_end = keys.end("");
        let request = proto::RangeRequest { key: start, range_end, limit: PAGE, revision, ..Default::default() };
        let response = client.range(request).await.map_err(|status| failed(&status))?;
        if revision == 0 {
            revision = response.header.map_or(0, |header| header.revision);
        }
        start = match response.kvs.last() {
            Some(last) => [&last.key[..], END].concat(),
            None => break,
        };
        kvs.extend(response.kvs);
        progress(kvs.len() as u64);
        if !response.more {
            break;
        }
    }
    Ok((kvs, revision as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    fn entries(all: &[(&str, Revision)]) -> Entries {
        let mut entries = Entries::default();
        for &(key, revision) in all {
            let entry = Entry { key: key.into(), value: Default::default(), revision, expires: 0 };
            entries.insert(Arc::new(entry));
        }
        entries
    }

    #[test]
    fn difference_has_the_missed_events_in_order() {
        let before = entries(&[("changed", 2), ("deleted", 3), ("same", 1)]);
        let after = entries(&[("changed", 9), ("new", 7), ("same", 1)]);
        let events = difference(&before, &after, 10);
        let seen =
            events.iter().map(|event| (event.revision, &*event.key, event.entry.is_some(), event.previous.is_some()));
        let seen: Vec<_> = seen.collect();
        assert_eq!(seen, [(7, "new", true, false), (9, "changed", true, true), (10, "deleted", false, true)]);
    }
}
