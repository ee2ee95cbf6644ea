//! Shared by the store's tests: a recording sink, waiting with a deadline, engines.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod etcd;
pub mod history;
pub mod sim;

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::Mutex;
use store::disk::{MemoryDisk, RealDisk};
use store::embedded::{self, Config, EmbeddedStore};
use store::{Durability, Event, Op, Precondition, Range, Revision, Sink, Store, Template, Watch, WatchResponse, Write};
use tokio::sync::watch;

/// The deadline of a test: everything here finishes much earlier.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A sink that records every event.
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    newest: watch::Sender<Revision>,
}

impl Recorder {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), newest: watch::Sender::new(0) })
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    pub fn newest(&self) -> Revision {
        *self.newest.borrow()
    }

    /// Waits until an event was published.
    pub async fn wait(&self, what: &str, found: impl Fn(&Event) -> bool) -> Event {
        let mut newest = self.newest.subscribe();
        let search = async {
            loop {
                newest.mark_unchanged();
                if let Some(event) = self.events().into_iter().find(|event| found(event)) {
                    return event;
                }
                newest.changed().await.unwrap();
            }
        };
        within(what, search).await
    }
}

impl Sink for Recorder {
    fn publish(&self, events: &[Event]) {
        self.events.lock().extend_from_slice(events);
        self.newest.send_replace(events.last().map_or(0, |event| event.revision));
    }

    fn progress(&self, _revision: Revision) {}
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

/// For threads that are not tasks: polls until it holds.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    stdx::wait::until(what, DEADLINE, holds);
}

/// A value with a placeholder: `{"rv":"","value":...}`.
pub fn template(value: &str) -> Template {
    Template { bytes: format!(r#"{{"rv":"","value":"{value}"}}"#).into_bytes(), hole: Some(7) }
}

pub fn put(key: &str, value: &str, expect: Precondition) -> Write {
    write(key, Op::Put(template(value)), expect)
}

pub fn delete(key: &str, expect: Precondition) -> Write {
    write(key, Op::Delete, expect)
}

fn write(key: &str, op: Op, expect: Precondition) -> Write {
    Write { key: key.to_owned(), op, expect, durability: Durability::Durable, ttl: None, cause: b"test".to_vec() }
}

pub fn relaxed(write: Write) -> Write {
    Write { durability: Durability::Relaxed, ..write }
}

pub fn everything() -> Range {
    Range::default()
}

pub fn prefix_range(prefix: &str) -> Range {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    Range { start: prefix.to_owned(), end: String::from_utf8(end).unwrap(), ..Range::default() }
}

/// The next events of a watch, skipping progress.
pub async fn next_events(watch: &mut Box<dyn Watch>) -> Vec<Event> {
    loop {
        if let WatchResponse::Events(events) = within("an event", watch.next()).await.expect("the watch goes on") {
            return events;
        }
    }
}

/// Watches until this many events were received.
pub async fn collect(watch: &mut Box<dyn Watch>, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next_events(watch).await);
    }
    events
}

pub fn config(dir: impl Into<std::path::PathBuf>) -> Config {
    Config::new(dir)
}

/// An engine under test, with everything that must live as long.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub sink: Arc<Recorder>,
    /// Whether the engine fills the placeholder.
    pub fills: bool,
    /// Whether each write of a transaction has its own revision.
    pub splits: bool,
    _keep: Box<dyn std::any::Any>,
}

impl Fixture {
    /// The stored form of a value that was written with `template`.
    pub fn value(&self, value: &str, revision: Revision) -> String {
        let rv = if self.fills { revision.to_string() } else { String::new() };
        format!(r#"{{"rv":"{rv}","value":"{value}"}}"#)
    }

    pub async fn put(&self, key: &str, value: &str) -> Revision {
        let committed = self.store.commit(vec![put(key, value, Precondition::Anything)]).await.expect("a put");
        committed[0].revision
    }

    pub async fn delete(&self, key: &str) -> Revision {
        let committed = self.store.commit(vec![delete(key, Precondition::Anything)]).await.expect("a delete");
        committed[0].revision
    }

    pub async fn keys(&self, range: Range) -> Vec<String> {
        let page = self.store.range(range).await.expect("a range");
        page.entries.iter().map(|entry| entry.key.to_string()).collect()
    }
}

pub async fn memory() -> Fixture {
    let sink = Recorder::new();
    let store = Arc::new(store::memory::open(sink.clone()).expect("a store"));
    Fixture { store, sink, fills: true, splits: true, _keep: Box::new(()) }
}

pub async fn disk() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let sink = Recorder::new();
    let store = Arc::new(open_real(dir.path(), sink.clone()));
    Fixture { store, sink, fills: true, splits: true, _keep: Box::new(dir) }
}

pub fn open_real(dir: &std::path::Path, sink: Arc<Recorder>) -> EmbeddedStore {
    embedded::open(config(dir), Arc::new(RealDisk), sink).expect("the store opens")
}

pub fn open_memory(disk: &MemoryDisk, config: Config) -> store::Result<EmbeddedStore> {
    embedded::open(config, Arc::new(disk.clone()), Recorder::new())
}
