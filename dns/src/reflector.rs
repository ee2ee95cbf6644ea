//! Lists and watches a resource without keeping its objects: each is passed on, and forgotten except for its key. An
//! informer would keep the JSON of all objects, of which the index needs little.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{Tree, json};
use client::{Client, Error, Event, Random, Resource, Result, key_of, revision_of};
use stdx::backoff::Backoff;

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAGE: usize = 500;
/// A watch without any event for so long is considered broken: bookmarks come every minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Receives an object, or its deletion.
pub type Put = Box<dyn Fn(&Arc<str>, Option<&Tree>) + Send + Sync>;

pub struct Reflector {
    client: Client,
    resource: Resource,
    /// Selectors in query syntax, or empty.
    query: String,
    put: Put,
    synced: Arc<AtomicBool>,
    known: HashSet<Arc<str>>,
    random: Random,
}

impl Reflector {
    /// `synced` becomes true once all objects of the first list were passed on.
    pub fn new(client: Client, resource: Resource, query: String, put: Put, synced: Arc<AtomicBool>) -> Reflector {
        let random = Random::seeded(Random::fresh_seed());
        Reflector { client, resource, query, put, synced, known: HashSet::new(), random }
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
                (self.put)(&key, Some(&object));
                self.known.insert(key.clone());
                listed.insert(key);
            }
            more = head.str("metadata.continue").to_string();
            if more.is_empty() {
                let missing = self.known.iter().filter(|key| !listed.contains(*key));
                missing.for_each(|key| (self.put)(key, None));
                self.known = listed;
                self.synced.store(true, Ordering::Release);
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
        match is_deleted {
            true => {
                self.known.remove(&key);
                (self.put)(&key, None);
            }
            false => {
                (self.put)(&key, Some(&object));
                self.known.insert(key);
            }
        }
        Ok(version.to_string())
    }
}

fn decode(bytes: &[u8]) -> Result<Tree> {
    json::decode_unmanaged(bytes).map_err(|error| Error::Answer(error.to_string()))
}
