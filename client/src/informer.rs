//! Caches a resource: lists it, watches it, and lists again if the watch cannot continue. Handlers receive each
//! change once and in order.

use std::sync::Arc;
use std::time::Duration;

use api::query::percent_decode;
use api::selector::{FieldSelector, Selector};
use api::{Str, json};
use stdx::backoff::pause_after;
use stdx::sync::RwLock;
use tokio::time::Instant;

use crate::index::Index;
use crate::object::{TypeMeta, revision_of, split};
use crate::ordered as watch;
use crate::writes::{WriteMark, WriteRecord};
use crate::{Change, Client, Error, Event, Random, Resource, Result, Store, Watch};

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAGE: usize = 500;
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// Periodically replays all objects to the handlers, without a request, as a safety net.
pub(crate) const RESYNC: Duration = Duration::from_secs(12 * 3600);

/// The selected objects of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub resource: Resource,
    /// Selectors in query syntax, or empty.
    pub query: &'static str,
}

impl Selection {
    /// All objects of a resource.
    pub const fn all(resource: Resource) -> Selection {
        Selection { resource, query: "" }
    }

    /// Selectors known only at run time, such as a node name. The text is leaked.
    pub fn queried(resource: Resource, query: &str) -> Selection {
        Selection { resource, query: crate::resource::interned(query) }
    }

    /// Whether a write belongs to the selection. Only `metadata.name` and `metadata.namespace` are supported as
    /// fields.
    fn covers(&self, writes: &WriteRecord) -> bool {
        let (namespace, name) = split(&writes.key);
        self.query.split('&').all(|term| match term.split_once('=') {
            Some(("labelSelector", text)) => {
                Selector::parse(&percent_decode(text)).is_ok_and(|selector| selector.matches_map(&writes.labels))
            }
            Some(("fieldSelector", text)) => FieldSelector::parse(&percent_decode(text)).is_ok_and(|selector| {
                selector.matches_with(|field| match field {
                    "metadata.name" => name,
                    "metadata.namespace" => namespace,
                    _ => "",
                })
            }),
            _ => true,
        })
    }
}

pub(crate) type Handler = Box<dyn Fn(&Change) + Send + Sync>;

/// Keeps a store up to date with a list and a watch.
pub struct Informer {
    client: Client,
    selection: Selection,
    store: Arc<Store>,
    handlers: RwLock<Vec<Handler>>,
    synced: watch::Sender<bool>,
    random: Arc<Random>,
    resync: Duration,
}

/// The backoff of an informer after consecutive failures.
#[derive(Default)]
struct InformerBackoff {
    failures: u32,
    expired: bool,
}

impl InformerBackoff {
    /// The first expired version is not a failure: the next list returns a new one.
    fn next(&mut self, error: &Error) -> Option<Duration> {
        if error.is_expired() && !std::mem::replace(&mut self.expired, true) {
            return None;
        }
        self.failures += 1;
        Some(pause_after(self.failures, FIRST_PAUSE, LONGEST_PAUSE))
    }
}

/// The state of an informer.
#[derive(Debug, PartialEq)]
enum State {
    Listing,
    /// All changes up to this version are in the store.
    Watching {
        version: String,
    },
}

impl Informer {
    /// An informer that is not started yet.
    pub fn new(client: Client, selection: Selection, store: Arc<Store>, random: Arc<Random>) -> Informer {
        Informer {
            client,
            selection,
            store,
            handlers: RwLock::default(),
            synced: watch::Sender::new(false),
            random,
            resync: RESYNC,
        }
    }

    /// Resyncs at intervals between the period and twice as long; never if it is zero.
    pub fn resyncing(self, period: Duration) -> Informer {
        Informer { resync: period, ..self }
    }

    /// The objects that it watches.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// The observed objects.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Adds an index to the store.
    pub fn index_by(&self, index: Index) -> &Informer {
        self.store.index_by(index);
        self
    }

    /// Calls `handler` for every change, in order. A handler added later first receives all existing objects, and
    /// concurrent changes possibly twice.
    pub fn on_change(&self, handler: impl Fn(&Change) + Send + Sync + 'static) {
        let mut handlers = self.handlers.write();
        for change in self.store.again() {
            handler(&Change { old: None, ..change });
        }
        handlers.push(Box::new(handler));
    }

    /// Becomes true once the first list is in the store.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Whether the store shows a write, or never will because the object is not selected.
    pub fn has_observed(&self, writes: &WriteRecord) -> bool {
        match (&writes.mark, self.store.object(&writes.key)) {
            (WriteMark::Revision(revision), None) => {
                self.store.revision() >= *revision || !self.selection.covers(writes)
            }
            (WriteMark::Revision(revision), Some(_)) => self.store.revision() >= *revision,
            (WriteMark::Gone(uid), object) => object.is_none_or(|object| object.uid != *uid),
        }
    }

    /// Waits until the store shows a write.
    pub async fn wait_for(&self, writes: &WriteRecord) {
        self.store.wait_until(|_| self.has_observed(writes)).await;
    }

    /// Runs until it is dropped.
    pub async fn run(self: Arc<Informer>) {
        let resync = async {
            if self.resync.is_zero() {
                std::future::pending::<()>().await;
            }
            let mut next = Instant::now();
            loop {
                next += self.random.jitter(self.resync, 1.0);
                tokio::time::sleep_until(next).await;
                self.notify(self.store.again());
            }
        };
        tokio::select! {
            biased;
            () = self.run_forever() => {}
            () = resync => {}
        }
    }

    async fn run_forever(&self) {
        let mut state = State::Listing;
        let mut pauses = InformerBackoff::default();
        loop {
            let (next, heard, result) = self.step(state).await;
            state = next;
            if heard {
                pauses = InformerBackoff::default();
            }
            let Err(error) = result else { continue };
            tracing::debug!(resource = self.selection.resource.plural, %error, "list or watch failed, restarting informer");
            if let Some(pause) = pauses.next(&error) {
                tokio::time::sleep(self.random.jitter(pause, 1.0)).await;
            }
        }
    }

    /// One list, or one watch until its end, and whether an event was received.
    async fn step(&self, state: State) -> (State, bool, Result<()>) {
        match state {
            State::Listing => match self.list().await {
                Ok(version) => (State::Watching { version }, false, Ok(())),
                Err(error) => (State::Listing, false, Err(error)),
            },
            State::Watching { version } => self.watch_from(version).await,
        }
    }

    async fn list(&self) -> Result<String> {
        let mut objects = Vec::new();
        let mut more = String::new();
        loop {
            let query = format!("limit={PAGE}&continue={more}&{}", self.selection.query);
            let (head, page) = self.client.list_objects(self.selection.resource, "", &query).await?;
            objects.extend(page);
            more = head.str("metadata.continue").to_string();
            if more.is_empty() {
                let types = TypeMeta {
                    api_version: Str::new(head.str("apiVersion")),
                    kind: Str::new(head.str("kind").trim_end_matches("List")),
                };
                self.notify(self.store.replace(objects, types));
                self.store.set_revision(revision_of(&head).unwrap_or(0));
                self.synced.send_replace(true);
                return Ok(head.str("metadata.resourceVersion").to_string());
            }
        }
    }

    async fn watch_from(&self, mut version: String) -> (State, bool, Result<()>) {
        let query = format!("allowWatchBookmarks=true&resourceVersion={version}&{}", self.selection.query);
        let mut seen = false;
        let ended = match self.client.watch(self.selection.resource, &query).await {
            Ok(watch) => self.read(watch, &mut version, &mut seen).await,
            Err(error) => Err(error),
        };
        match ended {
            Err(error) if error.is_expired() => (State::Listing, seen, Err(error)),
            ended => (State::Watching { version }, seen, ended),
        }
    }

    /// Processes events until the watch ends; an end without any event is an error.
    async fn read(&self, mut watch: Watch, version: &mut String, seen: &mut bool) -> Result<()> {
        while let Some(event) = or_timeout(watch.next()).await? {
            let revision = self.take(event?)?;
            *version = revision.to_string();
            // Set last: when a waiter gets a revision, it is already in the store and reported.
            self.store.set_revision(revision);
            *seen = true;
        }
        if *seen { Ok(()) } else { Err(Error::Transport("the watch ended without an event".to_string())) }
    }

    /// The revision of an event, once it is in the store.
    fn take(&self, event: Event) -> Result<u64> {
        let bad = || Error::Answer("object without resourceVersion".to_string());
        match event {
            Event::Bookmark(version) => version.parse().map_err(|_| bad()),
            Event::Put(object) => {
                let (changes, revision) = self.store.put(object).ok_or_else(bad)?;
                self.notify(changes);
                Ok(revision)
            }
            Event::Deleted(object) => {
                let meta = json::decode_only(&object, &["metadata"]).map_err(|_| bad())?;
                let deleted_at = revision_of(&meta);
                let change = self.store.delete(&crate::object::key_of(&meta));
                self.notify(change.map(|change| Change { deleted_at, ..change }));
                deleted_at.ok_or_else(bad)
            }
        }
    }

    fn notify(&self, changes: impl IntoIterator<Item = Change>) {
        let handlers = self.handlers.read();
        for change in changes {
            handlers.iter().for_each(|handler| handler(&change));
        }
    }
}

/// A watch without any event for long is considered broken: the server sends bookmarks every minute.
async fn or_timeout<T>(next: impl Future<Output = T>) -> Result<T> {
    let heard = tokio::time::timeout(LONGEST_SILENCE, next).await;
    heard.map_err(|_| Error::Transport("watch timed out: no event or bookmark".to_string()))
}

#[cfg(test)]
mod tests;
