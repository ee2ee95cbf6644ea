//! Lists and watches a resource without keeping its objects: each is passed on, and forgotten except for its key. An
//! informer would keep the JSON of all objects, of which some clients need little.

use std::collections::HashSet;
use std::time::Duration;

use api::{Tree, json};
use stdx::backoff::Backoff;

use crate::object::{Key, key_of, revision_of};
use crate::{Client, Error, Event, Random, Resource, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAGE: usize = 500;
/// A watch without any event for this long is considered broken: the server sends bookmarks every minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// An object that was listed, added or changed, or a deletion.
#[derive(Clone, Copy, Debug)]
pub struct ObjectChange<'a> {
    /// The object's key.
    pub key: &'a Key,
    /// The object; None if it was deleted.
    pub object: Option<&'a Tree>,
    /// The revision of the object or of its deletion; None for a deletion that a list has shown.
    pub revision: Option<u64>,
}

/// Receives objects.
pub trait Sink: Send {
    /// An object, or its deletion.
    fn put(&mut self, observed: ObjectChange<'_>);
    /// Everything up to this revision was passed on, after each complete list.
    fn listed(&mut self, revision: u64);
}

/// Lists and watches a resource.
pub struct Reflector<S> {
    client: Client,
    resource: Resource,
    /// Selectors in query syntax, or empty.
    query: String,
    sink: S,
    known: HashSet<Key>,
    random: Random,
}

impl<S: Sink> Reflector<S> {
    /// A reflector that has not read anything yet.
    pub fn new(client: Client, resource: Resource, query: String, sink: S) -> Reflector<S> {
        let random = Random::seeded(Random::fresh_seed());
        Reflector { client, resource, query, sink, known: HashSet::new(), random }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        // The version to watch from; without one, everything is listed.
        let mut version = None;
        loop {
            let result = match version.take() {
                None => self.list().await.map(|listed| version = Some(listed)),
                Some(from) => self.watch(from, &mut version).await,
            };
            match result {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(resource = self.resource.plural, %error, "list or watch failed, retrying");
                    version = version.filter(|_| !error.is_expired());
                    tokio::time::sleep(self.random.jitter(backoff.next_pause(), 1.0)).await;
                }
            }
        }
    }

    /// Passes on all objects, and the deletion of those that are missing; returns the version of the list.
    async fn list(&mut self) -> Result<String> {
        let (mut listed, mut more) = (HashSet::new(), String::new());
        loop {
            let query = format!("limit={PAGE}&continue={more}&{}", self.query);
            let (head, page) = self.client.list_objects(self.resource, "", &query).await?;
            for bytes in &page {
                let object = decode(bytes)?;
                let key = key_of(&object);
                self.sink.put(ObjectChange { key: &key, object: Some(&object), revision: revision_of(&object) });
                self.known.insert(key.clone());
                listed.insert(key);
            }
            more = head.str("metadata.continue").to_string();
            if more.is_empty() {
                let missing = self.known.iter().filter(|key| !listed.contains(*key));
                missing.for_each(|key| self.sink.put(ObjectChange { key, object: None, revision: None }));
                self.known = listed;
                self.sink.listed(revision_of(&head).unwrap_or(0));
                return Ok(head.str("metadata.resourceVersion").to_string());
            }
        }
    }

    /// Passes on events until the watch ends; `reached` is the version to continue from.
    async fn watch(&mut self, from: String, reached: &mut Option<String>) -> Result<()> {
        let query = format!("allowWatchBookmarks=true&resourceVersion={from}&{}", self.query);
        *reached = Some(from);
        let mut watch = self.client.watch(self.resource, &query).await?;
        let mut has_event = false;
        loop {
            let next = tokio::time::timeout(LONGEST_SILENCE, watch.next()).await;
            let silent = |_| Error::Transport("watch timed out: no event or bookmark".to_string());
            let Some(event) = next.map_err(silent)? else { break };
            *reached = Some(self.take(event?)?);
            has_event = true;
        }
        if has_event { Ok(()) } else { Err(Error::Transport("the watch ended without an event".to_string())) }
    }

    /// The version of an event, after it was passed on.
    fn take(&mut self, event: Event) -> Result<String> {
        let (object, is_deleted) = match event {
            Event::Bookmark(version) => return Ok(version),
            Event::Put(bytes) => (decode(&bytes)?, false),
            Event::Deleted(bytes) => (decode(&bytes)?, true),
        };
        let bad = || Error::Answer("object without resourceVersion".to_string());
        let (key, version) = (key_of(&object), revision_of(&object).ok_or_else(bad)?);
        let object = (!is_deleted).then_some(&object);
        self.sink.put(ObjectChange { key: &key, object, revision: Some(version) });
        match is_deleted {
            true => drop(self.known.remove(&key)),
            false => drop(self.known.insert(key)),
        }
        Ok(version.to_string())
    }
}

fn decode(bytes: &[u8]) -> Result<Tree> {
    json::decode_unmanaged(bytes).map_err(|error| Error::Answer(error.to_string()))
}
