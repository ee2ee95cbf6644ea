//! Keeps a resource in memory: lists it, then follows its watch, and lists again where the watch cannot
//! go on. Whoever is told of changes hears each of them once and in order.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use tokio::sync::watch;

use crate::{Change, Client, Error, Event, Resource, Result, Store, Watch};

const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const PAGE: usize = 500;

/// Which objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub resource: Resource,
    /// Selectors as they stand in a query, or "".
    pub query: &'static str,
}

pub type Handler = Box<dyn Fn(&Change) + Send + Sync>;

pub struct Informer {
    client: Client,
    selection: Selection,
    store: Arc<Store>,
    handlers: Vec<Handler>,
    synced: watch::Sender<bool>,
}

/// Where an informer stands.
#[derive(Debug, PartialEq)]
enum State {
    Listing,
    /// All changes up to this version are in the store.
    Watching {
        version: String,
    },
}

impl Informer {
    pub fn new(client: Client, selection: Selection, store: Arc<Store>) -> Informer {
        Informer { client, selection, store, handlers: Vec::new(), synced: watch::Sender::new(false) }
    }

    pub fn selection(&self) -> Selection {
        self.selection
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Calls `handler` for every change, before the next one is looked at.
    pub fn on_change(&mut self, handler: impl Fn(&Change) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// Turns true once the first list is in the store.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut state = State::Listing;
        let mut pause = FIRST_PAUSE;
        loop {
            let (next, result) = self.step(state).await;
            state = next;
            match result {
                Ok(()) => pause = FIRST_PAUSE,
                Err(error) => {
                    tracing::debug!(resource = self.selection.resource.plural, %error, "the informer starts again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// One list, or one watch to its end; an error asks for a pause.
    async fn step(&self, state: State) -> (State, Result<()>) {
        match state {
            State::Listing => match self.list().await {
                Ok(version) => (State::Watching { version }, Ok(())),
                Err(error) => (State::Listing, Err(error)),
            },
            State::Watching { version } => self.follow(version).await,
        }
    }

    async fn list(&self) -> Result<String> {
        let mut objects = Vec::new();
        let mut more = String::new();
        loop {
            let query = format!("limit={PAGE}&continue={more}&{}", self.selection.query);
            let mut page = self.client.list(self.selection.resource, "", &query).await?;
            if let Some(Tree::List(items)) = page.remove("items") {
                objects.extend(items.into_iter().map(trimmed));
            }
            more = page.str("metadata.continue").to_string();
            if more.is_empty() {
                self.tell(self.store.replace(objects));
                self.synced.send_replace(true);
                return Ok(page.str("metadata.resourceVersion").to_string());
            }
        }
    }

    async fn follow(&self, mut version: String) -> (State, Result<()>) {
        let query = format!("allowWatchBookmarks=true&resourceVersion={version}&{}", self.selection.query);
        let ended = match self.client.watch(self.selection.resource, &query).await {
            Ok(watch) => self.read(watch, &mut version).await,
            Err(error) => Err(error),
        };
        match ended {
            Err(error) if error.is_expired() => (State::Listing, Ok(())),
            ended => (State::Watching { version }, ended),
        }
    }

    /// Takes events until the watch ends; one that ends before any came asks for a pause.
    async fn read(&self, mut watch: Watch, version: &mut String) -> Result<()> {
        let mut seen = false;
        while let Some(event) = watch.next().await {
            self.take(event?, version);
            seen = true;
        }
        if seen { Ok(()) } else { Err(Error::Transport("the watch ended at once".to_string())) }
    }

    fn take(&self, event: Event, version: &mut String) {
        let newer = |object: &Tree| object.str("metadata.resourceVersion").to_string();
        let change = match event {
            Event::Bookmark(newer) => {
                *version = newer;
                None
            }
            Event::Put(object) => {
                *version = newer(&object);
                self.store.put(trimmed(object))
            }
            Event::Deleted(object) => {
                *version = newer(&object);
                self.store.delete(&crate::store::key_of(&object))
            }
        };
        self.tell(change);
    }

    fn tell(&self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.handlers.iter().for_each(|handler| handler(&change));
        }
    }
}

/// Who owns which field is of no use to those who only read.
fn trimmed(mut object: Tree) -> Tree {
    object.remove_at("metadata.managedFields");
    object
}

#[cfg(test)]
mod tests;
