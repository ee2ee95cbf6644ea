//! The cached objects of a resource, with indexes. Pure: it applies lists and events, and returns the changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use api::selector::Selector;
use api::{Str, Tree};
use bytes::Bytes;
use stdx::sync::RwLock;

use crate::index::{self, Index};
use crate::object::{Key, Object, ObservedObject, TreeCache, TypeMeta};
use crate::ordered as watch;

/// A change of an object. A deletion is reported once, whether it was observed or found by a list. In a resync old
/// and new are the same.
#[derive(Debug, Clone)]
pub struct Change {
    pub key: Key,
    pub old: Option<ObservedObject>,
    pub new: Option<ObservedObject>,
    /// The revision of an observed deletion; None if it was found by a list, or for other changes.
    pub deleted_at: Option<u64>,
}

/// The objects of an informer, with indexes.
#[derive(Default)]
pub struct Store {
    inner: RwLock<Inner>,
    recent: Arc<TreeCache>,
    /// The newest revision up to which everything is stored and reported.
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Key, Arc<Object>>,
    indexes: Vec<Index>,
    /// By index and value.
    found: HashMap<(&'static str, Str), BTreeSet<Key>>,
    types: Arc<TypeMeta>,
}

impl Store {
    /// A store whose cached trees share a limit with others.
    pub fn new(recent: Arc<TreeCache>) -> Store {
        Store { recent, ..Store::default() }
    }

    /// Adds an index.
    pub fn index_by(&self, index: Index) {
        let mut inner = self.write();
        if inner.has_index(index.name) {
            return;
        }
        inner.indexes.push(index);
        let objects: Vec<Arc<Object>> = inner.objects.values().cloned().collect();
        for object in objects {
            let tree = object.tree();
            inner.unindex(&object);
            let indexed = inner.indexed(&object, &tree);
            inner.insert(indexed);
        }
    }

    /// The object of a key.
    pub fn get(&self, key: &str) -> Option<Arc<Tree>> {
        self.object(key).map(|object| object.tree())
    }

    /// The cached object.
    pub fn object(&self, key: &str) -> Option<Arc<Object>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, sorted by key.
    pub fn all(&self) -> Vec<Arc<Tree>> {
        let objects: Vec<Arc<Object>> = self.read().objects.values().cloned().collect();
        trees(objects)
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of a namespace, sorted by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<Tree>> {
        let objects = self.read().objects_in(namespace).map(|(_, object)| object.clone()).collect();
        trees(objects)
    }

    /// The keys of a namespace.
    pub fn keys_in_namespace(&self, namespace: &str) -> Vec<Key> {
        self.read().objects_in(namespace).map(|(key, _)| key.clone()).collect()
    }

    /// The objects with an index value, sorted by key.
    pub fn find(&self, index: Index, value: &str) -> Vec<Arc<Tree>> {
        let objects = self.read().find(index, value);
        trees(objects)
    }

    /// The number of objects with an index value, without reading them.
    pub fn count(&self, index: Index, value: &str) -> usize {
        self.read().found.get(&(index.name, Str::new(value))).map_or(0, BTreeSet::len)
    }

    /// The keys of the objects with an index value.
    pub fn find_keys(&self, index: Index, value: &str) -> Vec<Key> {
        self.read().find(index, value).into_iter().map(|object| object.key.clone()).collect()
    }

    /// The objects that match a selector in a namespace, or in all if it is empty.
    pub fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Tree>> {
        let candidates = self.read().candidates(namespace, selector);
        let chosen = |tree: &Arc<Tree>| selector.matches_map(tree.map("metadata.labels"));
        candidates.into_iter().map(|object| object.tree()).filter(chosen).collect()
    }

    /// The newest revision up to which everything is stored.
    pub fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Waits until everything up to a revision is stored and reported.
    pub async fn wait_for(&self, revision: u64) {
        self.wait_until(|store| store.revision() >= revision).await;
    }

    /// Waits until the predicate holds.
    pub async fn wait_until(&self, holds: impl Fn(&Store) -> bool) {
        let mut moved = self.revision.subscribe();
        while !holds(self) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    fn read(&self) -> stdx::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> stdx::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }
}

/// Writes, for the informer only.
impl Store {
    /// Stores an object; returns the changes and the object's revision.
    pub fn put(&self, bytes: Bytes) -> Option<(Vec<Change>, u64)> {
        let types = self.read().types.clone();
        let (object, tree) = Object::read(bytes, &types, &self.recent)?;
        let revision = object.revision;
        Some((self.write().put(object, &tree), revision))
    }

    /// None if the object is unknown, so that no deletion is reported twice.
    pub fn delete(&self, key: &str) -> Option<Change> {
        self.write().delete(key)
    }

    /// Stores a complete list: missing objects are deleted.
    pub fn replace(&self, objects: Vec<Bytes>, types: TypeMeta) -> Vec<Change> {
        let types = Arc::new(types);
        self.write().types = types.clone();
        let mut kept = BTreeSet::new();
        let mut changes = Vec::new();
        for bytes in objects {
            // Locked for each object, so that a long list does not block readers.
            let Some((object, tree)) = Object::read(bytes, &types, &self.recent) else { continue };
            kept.insert(object.key.clone());
            changes.extend(self.write().put(object, &tree));
        }
        let mut inner = self.write();
        let gone: Vec<Key> = inner.objects.keys().filter(|key| !kept.contains(*key)).cloned().collect();
        changes.extend(gone.iter().filter_map(|key| inner.delete(key)));
        changes
    }

    /// Every object as unchanged, for a resync.
    pub(crate) fn again(&self) -> Vec<Change> {
        let again = |object: &Arc<Object>| {
            let seen = Some(ObservedObject::new(object.clone()));
            Change { key: object.key.clone(), old: seen.clone(), new: seen, deleted_at: None }
        };
        self.read().objects.values().map(again).collect()
    }

    /// Everything up to this revision is stored and reported. It may be lower than before after the server was
    /// restored.
    pub(crate) fn set_revision(&self, revision: u64) {
        self.revision.send_replace(revision);
    }
}

fn trees(objects: Vec<Arc<Object>>) -> Vec<Arc<Tree>> {
    objects.into_iter().map(|object| object.tree()).collect()
}

impl Inner {
    fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| index.name == name)
    }

    fn objects_in(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let prefix = format!("{namespace}/");
        let start = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let rest = self.objects.range::<str, _>(start);
        rest.take_while(move |(key, _)| key.starts_with(&prefix))
    }

    fn find(&self, index: Index, value: &str) -> Vec<Arc<Object>> {
        if !self.has_index(index.name) {
            // A missing declaration yields the correct result, slowly.
            tracing::error!(index = index.name, "index is not declared, scanning every object");
            let has = |object: &&Arc<Object>| (index.values)(&object.tree()).iter().any(|other| other == value);
            return self.objects.values().filter(has).cloned().collect();
        }
        let keys = self.found.get(&(index.name, Str::new(value)));
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    /// The candidates of a selector: by the label with the fewest objects, if the selector requires a label value and
    /// labels are indexed.
    fn candidates(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Object>> {
        if selector.is_nothing() {
            return Vec::new();
        }
        if namespace.is_empty() {
            return self.objects.values().cloned().collect();
        }
        let exact = selector.requirements().iter().filter_map(|requirement| {
            let value = selector.exact(requirement.key())?;
            Some((index::LABELS.name, Str::from(index::label(namespace, requirement.key(), value))))
        });
        let count = |place: &(&'static str, Str)| self.found.get(place).map_or(0, BTreeSet::len);
        let fewest = exact.min_by_key(count).filter(|_| self.has_index(index::LABELS.name));
        match fewest {
            Some((_, value)) => self.find(index::LABELS, &value),
            None => self.objects_in(namespace).map(|(_, object)| object.clone()).collect(),
        }
    }

    /// Nothing if the version is already stored. A different object of the same name is a deletion and an addition.
    fn put(&mut self, mut object: Object, tree: &Tree) -> Vec<Change> {
        let old = self.objects.get(&object.key).cloned();
        if old.as_ref().is_some_and(|old| old.revision == object.revision) {
            return Vec::new();
        }
        if let Some(old) = &old {
            self.unindex(old);
        }
        object.places = self.index_values(tree);
        let new = Arc::new(object);
        self.insert(new.clone());
        let key = new.key.clone();
        match old {
            Some(old) if old.uid != new.uid => vec![
                Change { key: key.clone(), old: Some(ObservedObject::new(old)), new: None, deleted_at: None },
                Change { key, old: None, new: Some(ObservedObject::new(new)), deleted_at: None },
            ],
            old => vec![Change {
                key,
                old: old.map(ObservedObject::new),
                new: Some(ObservedObject::new(new)),
                deleted_at: None,
            }],
        }
    }

    fn delete(&mut self, key: &str) -> Option<Change> {
        let (key, old) = self.objects.remove_entry(key)?;
        self.unindex(&old);
        Some(Change { key, old: Some(ObservedObject::new(old)), new: None, deleted_at: None })
    }

    fn index_values(&self, tree: &Tree) -> Box<[(&'static str, Str)]> {
        let values =
            |Index { name, values }: Index| values(tree).into_iter().map(move |value| (name, Str::from(value)));
        self.indexes.iter().copied().flat_map(values).collect()
    }

    /// The same object with its current index entries.
    fn indexed(&self, object: &Object, tree: &Tree) -> Arc<Object> {
        Arc::new(object.with_index_values(self.index_values(tree)))
    }

    fn insert(&mut self, object: Arc<Object>) {
        for place in &object.places {
            self.found.entry(place.clone()).or_default().insert(object.key.clone());
        }
        self.objects.insert(object.key.clone(), object);
    }

    fn unindex(&mut self, old: &Object) {
        for place in &old.places {
            let Some(keys) = self.found.get_mut(place) else { continue };
            keys.remove(&old.key);
            if keys.is_empty() {
                self.found.remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Index = Index { name: "node", values: |tree| vec![tree.str("node").to_string()] };

    fn object(name: &str, version: &str, node: &str) -> Bytes {
        let labels = format!(r#""labels":{{"on":"{node}","all":"x"}}"#);
        let meta = format!(
            r#""namespace":"a","name":"{name}","resourceVersion":"{version}","uid":"{name}{}",{labels}"#,
            version > "5"
        );
        Bytes::from(format!(r#"{{"metadata":{{{meta}}},"node":"{node}"}}"#))
    }

    fn describe_changes(changes: impl IntoIterator<Item = Change>) -> String {
        let mark = |change: &Change| match (&change.old, &change.new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        changes.into_iter().map(|change| format!("{}{} ", mark(&change), change.key)).collect()
    }

    fn put(store: &Store, object: Bytes) -> String {
        describe_changes(store.put(object).expect("an object").0)
    }

    fn replace(store: &Store, objects: Vec<Bytes>) -> String {
        describe_changes(store.replace(objects, TypeMeta::default()))
    }

    #[test]
    fn reports_every_change_once() {
        let store = Store::default();
        assert_eq!(replace(&store, vec![object("x", "1", ""), object("y", "2", "")]), "+a/x +a/y ");
        assert_eq!(put(&store, object("x", "1", "")), "", "the same version again");
        assert_eq!(put(&store, object("x", "3", "")), "~a/x ");
        assert_eq!(describe_changes(store.delete("a/y")), "-a/y ");
        assert_eq!(describe_changes(store.delete("a/y")), "", "it is already deleted");
        assert_eq!(replace(&store, vec![object("z", "5", "")]), "+a/z -a/x ", "a list shows what was missed");
        assert_eq!(put(&store, object("z", "6", "")), "-a/z +a/z ", "another object of the same name");
        assert!(store.put(Bytes::from("{}")).is_none(), "no object");
    }

    #[test]
    fn indexes_follow_changes() {
        let store = Store::default();
        store.index_by(NODE);
        let count = |node: &str| store.find(NODE, node).len();
        replace(&store, vec![object("x", "1", "n"), object("y", "2", "n")]);
        assert_eq!((count("n"), count("m")), (2, 0));
        put(&store, object("x", "3", "m"));
        assert_eq!((count("n"), count("m")), (1, 1));
        assert_eq!((store.count(NODE, "n"), store.count(NODE, "x")), (1, 0));
        store.delete("a/y");
        assert_eq!((count("n"), count("m")), (0, 1));
        assert_eq!(store.read().found.len(), 1, "an empty entry is not kept");
    }

    #[test]
    fn indexes_can_be_added_later() {
        let store = Store::default();
        replace(&store, vec![object("x", "1", "n"), object("y", "2", "m")]);
        assert_eq!(store.find_keys(NODE, "n").len(), 1, "without an index");
        store.index_by(NODE);
        store.index_by(NODE);
        assert_eq!(store.find_keys(NODE, "n").len(), 1);
        store.delete("a/x");
        assert_eq!(store.find_keys(NODE, "n").len(), 0);
    }

    #[test]
    fn selects_with_and_without_label_index() {
        let store = Store::default();
        replace(&store, vec![object("x", "1", "n"), object("y", "2", "m"), object("z", "3", "m")]);
        let check = |namespace: &str, selector: &str, want: usize| {
            let selector = Selector::parse(selector).expect("a selector");
            assert_eq!(store.select(namespace, &selector).len(), want, "{namespace} {selector}");
        };
        for _ in 0..2 {
            check("a", "on=m", 2);
            check("a", "all=x,on=n", 1);
            check("a", "on!=m", 1);
            check("a", "on=none", 0);
            check("b", "on=m", 0);
            check("", "on=m", 2);
            check("a", "", 3);
            store.index_by(index::LABELS);
        }
        assert!(store.select("a", &Selector::nothing()).is_empty());
        assert_eq!((store.in_namespace("a").len(), store.in_namespace("").len()), (3, 0));
    }

    #[tokio::test]
    async fn waits_for_revisions() {
        let store = Arc::new(Store::default());
        let waiter = tokio::spawn({
            let store = store.clone();
            async move { store.wait_for(5).await }
        });
        store.set_revision(4);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        store.set_revision(6);
        waiter.await.expect("it ends");
        store.wait_for(6).await;
    }
}
