//! The objects of a resource in memory, with indexes. Pure: it takes lists and events, and says what
//! they changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use api::Tree;

/// `NAMESPACE/NAME`, or `NAME` of an object without a namespace.
pub type Key = Arc<str>;

/// What happened to an object. A deletion is told once, whether it was seen or found out by a list.
#[derive(Debug, Clone)]
pub struct Change {
    pub key: Key,
    pub old: Option<Arc<Tree>>,
    pub new: Option<Arc<Tree>>,
}

/// The values under which an object is found.
pub type Index = fn(&Tree) -> Vec<String>;

#[derive(Default)]
pub struct Store {
    inner: RwLock<Inner>,
    indexes: Vec<(&'static str, Index)>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Key, Arc<Tree>>,
    /// By index and value.
    found: HashMap<(&'static str, String), BTreeSet<Key>>,
}

pub fn key_of(object: &Tree) -> Key {
    let meta = object.at("metadata");
    match meta.str("namespace") {
        "" => Key::from(meta.str("name")),
        namespace => Key::from(format!("{namespace}/{}", meta.str("name"))),
    }
}

impl Store {
    pub fn new(indexes: Vec<(&'static str, Index)>) -> Store {
        Store { indexes, ..Store::default() }
    }

    pub fn get(&self, key: &str) -> Option<Arc<Tree>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects in the order of their keys.
    pub fn all(&self) -> Vec<Arc<Tree>> {
        self.read().objects.values().cloned().collect()
    }

    pub fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    /// The objects that an index has under a value.
    pub fn find(&self, index: &'static str, value: &str) -> Vec<Arc<Tree>> {
        let inner = self.read();
        let keys = inner.found.get(&(index, value.to_string()));
        keys.into_iter().flatten().filter_map(|key| inner.objects.get(key).cloned()).collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, object: Tree) -> Option<Change> {
        self.write().put(object, &self.indexes)
    }

    /// None where the object was not known, so that nobody hears of a deletion twice.
    pub fn delete(&self, key: &str) -> Option<Change> {
        self.write().delete(key, &self.indexes)
    }

    /// Takes a whole list: what is not in it is gone.
    pub fn replace(&self, objects: Vec<Tree>) -> Vec<Change> {
        let mut inner = self.write();
        let kept: BTreeSet<Key> = objects.iter().map(key_of).collect();
        let gone: Vec<Key> = inner.objects.keys().filter(|key| !kept.contains(*key)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().filter_map(|key| inner.delete(key, &self.indexes)).collect();
        changes.extend(objects.into_iter().filter_map(|object| inner.put(object, &self.indexes)));
        changes
    }
}

impl Inner {
    /// None where the same version is there already.
    fn put(&mut self, object: Tree, indexes: &[(&'static str, Index)]) -> Option<Change> {
        let key = key_of(&object);
        let version = |tree: &Tree| tree.str("metadata.resourceVersion").to_string();
        let old = self.objects.get(&key).cloned();
        if old.as_ref().is_some_and(|old| version(old) == version(&object)) {
            return None;
        }
        if let Some(old) = &old {
            self.unindex(&key, old, indexes);
        }
        let new = Arc::new(object);
        for (name, index) in indexes {
            for value in index(&new) {
                self.found.entry((name, value)).or_default().insert(key.clone());
            }
        }
        self.objects.insert(key.clone(), new.clone());
        Some(Change { key, old, new: Some(new) })
    }

    fn delete(&mut self, key: &str, indexes: &[(&'static str, Index)]) -> Option<Change> {
        let (key, old) = self.objects.remove_entry(key)?;
        self.unindex(&key, &old, indexes);
        Some(Change { key, old: Some(old), new: None })
    }

    fn unindex(&mut self, key: &Key, old: &Tree, indexes: &[(&'static str, Index)]) {
        for (name, index) in indexes {
            for value in index(old) {
                let place = (*name, value);
                let Some(keys) = self.found.get_mut(&place) else { continue };
                keys.remove(key);
                if keys.is_empty() {
                    self.found.remove(&place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn object(name: &str, version: &str, node: &str) -> Tree {
        tree! {
            "metadata" => tree! { "namespace" => "a", "name" => name, "resourceVersion" => version },
            "node" => node,
        }
    }

    fn told(changes: impl IntoIterator<Item = Change>) -> String {
        let mark = |change: &Change| match (&change.old, &change.new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        changes.into_iter().map(|change| format!("{}{} ", mark(&change), change.key)).collect()
    }

    #[test]
    fn every_change_is_told_once() {
        let store = Store::default();
        assert_eq!(told(store.replace(vec![object("x", "1", ""), object("y", "2", "")])), "+a/x +a/y ");
        assert_eq!(told(store.put(object("x", "1", ""))), "", "the same version again");
        assert_eq!(told(store.put(object("x", "3", ""))), "~a/x ");
        assert_eq!(told(store.delete("a/y")), "-a/y ");
        assert_eq!(told(store.delete("a/y")), "", "it is gone already");
        assert_eq!(told(store.replace(vec![object("z", "5", "")])), "-a/x +a/z ", "a list shows what was missed");
    }

    #[test]
    fn indexes_follow() {
        let store = Store::new(vec![("node", |tree| vec![tree.str("node").to_string()])]);
        let count = |node: &str| store.find("node", node).len();
        store.replace(vec![object("x", "1", "n"), object("y", "2", "n")]);
        assert_eq!((count("n"), count("m")), (2, 0));
        store.put(object("x", "3", "m"));
        assert_eq!((count("n"), count("m")), (1, 1));
        store.delete("a/y");
        assert_eq!((count("n"), count("m")), (0, 1));
        assert_eq!(store.read().found.len(), 1, "an empty entry is not kept");
    }
}
