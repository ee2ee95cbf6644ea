//! The objects, in memory, with a history from which watches are served.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Tree;
use api::status::Status;
use tokio::sync::watch;

use crate::greetings::{GROUP, RESOURCE};

/// Objects that are kept; there is no disk behind them.
const MAX_OBJECTS: usize = 10_000;
/// Changes that a watch can still see.
const MAX_HISTORY: usize = 1_000;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// A change of an object, at the revision of its resourceVersion.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) event: &'static str,
    pub(crate) object: Tree,
}

struct State {
    revision: u64,
    objects: BTreeMap<Key, Tree>,
    history: VecDeque<Change>,
}

pub(crate) struct Store {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new() -> Store {
        let state = State { revision: 1, objects: BTreeMap::new(), history: VecDeque::new() };
        Store { state: Mutex::new(state), newest: watch::Sender::new(1) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is changed in one step: one that panicked has left it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Tree, Status> {
        self.lock().objects.get(key).cloned().ok_or_else(|| not_found(key))
    }

    /// All objects, and the revision from which a watch goes on.
    pub(crate) fn list(&self) -> (Vec<Tree>, u64) {
        let state = self.lock();
        (state.objects.values().cloned().collect(), state.revision)
    }

    pub(crate) fn create(&self, key: Key, object: Tree) -> Result<Tree, Status> {
        let mut state = self.lock();
        if state.objects.contains_key(&key) {
            return Err(Status::already_exists(GROUP, RESOURCE, &key.1));
        }
        if state.objects.len() >= MAX_OBJECTS {
            return Err(Status::too_many_requests("there are too many greetings", 60));
        }
        Ok(self.write(&mut state, key, "ADDED", object))
    }

    /// Computes the new object from the old one; a resourceVersion in it must be that of the old one.
    pub(crate) fn update(&self, key: Key, change: impl FnOnce(Tree) -> Result<Tree, Status>) -> Result<Tree, Status> {
        let mut state = self.lock();
        let old = state.objects.get(&key).cloned().ok_or_else(|| not_found(&key))?;
        let mut new = change(old.clone())?;
        let version = new.str("metadata.resourceVersion");
        if !version.is_empty() && version != old.str("metadata.resourceVersion") {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Status::conflict(GROUP, RESOURCE, &key.1, why));
        }
        for field in ["uid", "creationTimestamp", "name", "namespace"] {
            new.child("metadata").set(field, old.at("metadata").str(field));
        }
        Ok(self.write(&mut state, key, "MODIFIED", new))
    }

    pub(crate) fn delete(&self, key: &Key) -> Result<Tree, Status> {
        let mut state = self.lock();
        let object = state.objects.remove(key).ok_or_else(|| not_found(key))?;
        Ok(self.record(&mut state, "DELETED", object))
    }

    fn write(&self, state: &mut State, key: Key, event: &'static str, object: Tree) -> Tree {
        let object = self.record(state, event, object);
        state.objects.insert(key, object.clone());
        object
    }

    fn record(&self, state: &mut State, event: &'static str, mut object: Tree) -> Tree {
        state.revision += 1;
        object.child("metadata").set("resourceVersion", state.revision.to_string());
        if state.history.len() >= MAX_HISTORY {
            state.history.pop_front();
        }
        state.history.push_back(Change { revision: state.revision, event, object: object.clone() });
        self.newest.send_replace(state.revision);
        object
    }

    /// The changes after a revision, or an error if the history no longer has them.
    pub(crate) fn changes_after(&self, revision: u64) -> Result<Vec<Change>, Status> {
        let state = self.lock();
        let first = state.history.front().map_or(state.revision + 1, |change| change.revision);
        if revision + 1 < first || revision > state.revision {
            return Err(Status::gone(format!("too old resource version: {revision} ({first})")));
        }
        Ok(state.history.iter().filter(|change| change.revision > revision).cloned().collect())
    }

    /// Says when there is something new.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

fn not_found(key: &Key) -> Status {
    Status::not_found(GROUP, RESOURCE, &key.1)
}
