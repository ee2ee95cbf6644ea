//! Watches the metadata of a resource without storing it: the listener receives every object and every change, and
//! after each list the set of all objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::tree::Str;
use api::{Tree, json};
use stdx::backoff::Backoff;

use crate::ordered as watch;
use crate::{Client, Error, Event, Random, Resource, Result, Watch};

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAGE: usize = 500;

/// Receives the objects of a follower.
pub trait Listener: Send + Sync {
    /// An added or changed object.
    fn put(&self, object: &Tree);
    /// An object was deleted.
    fn deleted(&self, object: &Tree);
    /// All existing objects: others were deleted unnoticed.
    fn listed(&self, uids: &BTreeSet<Str>);
}

/// Watches the metadata of a resource's objects and passes every change to its listener.
pub struct Follower {
    pub client: Client,
    pub resource: Resource,
    pub random: Arc<Random>,
    pub listener: Box<dyn Listener>,
    /// Each change of this generation requests another complete list.
    pub relist: watch::Receiver<u64>,
    /// The generation whose complete list was reported; None before the first one.
    pub synced: watch::Sender<Option<u64>>,
}

/// The state of the follower.
enum State {
    Listing,
    /// Everything up to this version was reported.
    Watching(String),
}

impl Follower {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut relist = self.relist.clone();
        loop {
            let generation = *relist.borrow_and_update();
            tokio::select! {
                biased;
                changed = relist.changed() => if changed.is_err() { return },
                () = self.list_and_watch(generation) => {}
            }
        }
    }

    /// Lists for a generation, then watches. Objects are reported between two awaits: dropping this future never leaves
    /// an object partially reported.
    async fn list_and_watch(&self, generation: u64) {
        let mut state = State::Listing;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.step(&mut state, generation).await {
                Ok(()) => backoff.reset(),
                Err(error) if error.is_expired() => state = State::Listing,
                Err(error) => {
                    tracing::debug!(resource = self.resource.plural, %error, "watch failed, retrying");
                    tokio::time::sleep(self.random.jitter(backoff.next_pause(), 1.0)).await;
                }
            }
        }
    }

    /// One list, or one watch until its end.
    async fn step(&self, state: &mut State, generation: u64) -> Result<()> {
        match state {
            State::Listing => *state = State::Watching(self.list(generation).await?),
            State::Watching(version) => {
                let query = format!("allowWatchBookmarks=true&resourceVersion={version}");
                let watch = self.client.watch_metadata(self.resource, &query).await?;
                self.read(watch, version).await?;
            }
        }
        Ok(())
    }

    async fn list(&self, generation: u64) -> Result<String> {
        let mut uids = BTreeSet::new();
        let mut more = String::new();
        loop {
            let query = format!("limit={PAGE}&continue={more}");
            let page = self.client.list_metadata(self.resource, "", &query).await?;
            for object in page.list("items") {
                uids.insert(Str::new(object.str("metadata.uid")));
                self.listener.put(object);
            }
            more = page.str("metadata.continue").to_string();
            if more.is_empty() {
                self.listener.listed(&uids);
                self.synced.send_replace(Some(generation));
                return Ok(page.str("metadata.resourceVersion").to_string());
            }
        }
    }

    /// Processes events until the watch ends; an end without any event is an error, which causes a pause.
    async fn read(&self, mut watch: Watch, version: &mut String) -> Result<()> {
        let mut seen = false;
        while let Some(event) = watch.next().await {
            *version = self.take(event?)?;
            seen = true;
        }
        if seen { Ok(()) } else { Err(Error::Transport("the watch ended without an event".to_string())) }
    }

    fn take(&self, event: Event) -> Result<String> {
        let read = |bytes: &[u8]| json::decode_metadata(bytes).map_err(|error| Error::Answer(error.to_string()));
        let version = |object: &Tree| object.str("metadata.resourceVersion").to_string();
        match event {
            Event::Bookmark(version) => Ok(version),
            Event::Put(bytes) => {
                let object = read(&bytes)?;
                self.listener.put(&object);
                Ok(version(&object))
            }
            Event::Deleted(bytes) => {
                let object = read(&bytes)?;
                self.listener.deleted(&object);
                Ok(version(&object))
            }
        }
    }
}
