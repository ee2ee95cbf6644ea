//! A cached object: its JSON and its index values. Trees are decoded on access, and the most recent ones of a process
//! are cached up to a limit.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use api::{Str, Tree, json};
use bytes::Bytes;
use stdx::sync::{Mutex, MutexGuard};

/// `NAMESPACE/NAME`, or `NAME` of a cluster-scoped object.
pub type Key = Arc<str>;

/// The limit of cached trees in bytes of JSON; a tree needs about three times that.
const RECENT_BYTES: usize = 8 << 20;
/// The number of stale entries that triggers a cleanup.
const GONE: usize = 64;

/// The most recently decoded trees of all informers in a process. A tree is evicted with its object, or by newer
/// ones.
#[derive(Debug, Default)]
pub struct TreeCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// In decoding order; some may be stale.
    made: VecDeque<Weak<CachedTree>>,
    /// The number of valid entries, and their size as JSON.
    count: usize,
    bytes: usize,
}

/// The cached tree of an object, which counts in `recent` while it exists.
#[derive(Debug)]
struct CachedTree {
    tree: Mutex<Option<Arc<Tree>>>,
    size: usize,
    recent: Arc<TreeCache>,
}

impl TreeCache {
    fn insert(&self, made: &Arc<CachedTree>) {
        let mut kept = self.state();
        kept.count += 1;
        kept.bytes += made.size;
        kept.made.push_back(Arc::downgrade(made));
        let dropped = kept.overflow();
        kept.remove_dropped();
        // Unlock first: dropping trees is slower than all of the above.
        drop(kept);
        dropped.iter().for_each(|made| drop(made.take()));
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock()
    }
}

impl CacheState {
    /// The entries to evict for the newest.
    fn overflow(&mut self) -> Vec<Arc<CachedTree>> {
        let mut dropped = Vec::new();
        while self.bytes > RECENT_BYTES && self.count > 1 {
            let Some(oldest) = self.made.pop_front() else { break };
            // An entry that is being dropped removes itself.
            let Some(oldest) = oldest.upgrade() else { continue };
            self.remove(oldest.size);
            dropped.push(oldest);
        }
        dropped
    }

    fn remove(&mut self, size: usize) {
        self.count -= 1;
        self.bytes -= size;
    }

    /// Amortized cleanup.
    fn remove_dropped(&mut self) {
        if self.made.len() > 2 * self.count + GONE {
            self.made.retain(|made| made.strong_count() > 0);
        }
    }
}

impl CachedTree {
    fn take(&self) -> Option<Arc<Tree>> {
        self.tree.lock().take()
    }
}

impl Drop for CachedTree {
    fn drop(&mut self) {
        if self.take().is_some() {
            self.recent.state().remove(self.size);
        }
    }
}

/// apiVersion and kind of all objects of a resource, which list items lack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMeta {
    pub api_version: Str,
    pub kind: Str,
}

/// An object as it was received: its bytes, and its tree once it was read.
#[derive(Debug)]
pub struct Object {
    pub key: Key,
    pub uid: Str,
    pub revision: u64,
    bytes: Bytes,
    types: Arc<TypeMeta>,
    /// The index entries of the object: index name and value.
    pub(crate) places: Box<[(&'static str, Str)]>,
    made: Arc<CachedTree>,
}

impl Object {
    /// None if the bytes are not an object with a name and a resourceVersion.
    pub(crate) fn read(bytes: Bytes, types: &Arc<TypeMeta>, recent: &Arc<TreeCache>) -> Option<(Object, Arc<Tree>)> {
        let tree = Arc::new(decode(&bytes, types)?);
        let (key, revision) = (key_of(&tree), revision_of(&tree)?);
        let uid = Str::new(tree.str("metadata.uid"));
        let kept = Mutex::new(Some(tree.clone()));
        let made = Arc::new(CachedTree { tree: kept, size: bytes.len(), recent: recent.clone() });
        recent.insert(&made);
        let object = Object { key, uid, revision, bytes, types: types.clone(), places: Box::default(), made };
        Some((object, tree))
    }

    /// The object's JSON; shared with the watch cache if the server is in this process.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn with_index_values(&self, places: Box<[(&'static str, Str)]>) -> Object {
        Object {
            key: self.key.clone(),
            uid: self.uid.clone(),
            revision: self.revision,
            bytes: self.bytes.clone(),
            types: self.types.clone(),
            places,
            made: self.made.clone(),
        }
    }

    /// The parsed object; parsed at most once while it is used.
    pub fn tree(&self) -> Arc<Tree> {
        let mut made = self.made.tree.lock();
        if let Some(tree) = &*made {
            return tree.clone();
        }
        // The bytes were decoded before, so decoding succeeds.
        let tree = Arc::new(decode(&self.bytes, &self.types).unwrap_or_default());
        *made = Some(tree.clone());
        drop(made);
        self.made.recent.insert(&self.made);
        tree
    }
}

fn decode(bytes: &[u8], types: &TypeMeta) -> Option<Tree> {
    let mut tree = json::decode_unmanaged(bytes).ok()?;
    if !types.kind.is_empty() {
        tree.set_default("kind", types.kind.clone());
        tree.set_default("apiVersion", types.api_version.clone());
    }
    Some(tree)
}

/// The key of an object: `namespace/name`, or the name.
pub fn key_of(object: &Tree) -> Key {
    let meta = object.at("metadata");
    key(meta.str("namespace"), meta.str("name"))
}

/// The key of an object; cluster-scoped objects have no namespace.
pub fn key(namespace: &str, name: &str) -> Key {
    match namespace {
        "" => Key::from(name),
        namespace => Key::from(format!("{namespace}/{name}")),
    }
}

/// Namespace (or empty) and name.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// The resourceVersion of an object as a number.
pub fn revision_of(object: &Tree) -> Option<u64> {
    object.str("metadata.resourceVersion").parse().ok()
}

/// An object as observed at one time; its tree is decoded on access.
#[derive(Debug, Clone)]
pub struct ObservedObject {
    object: Arc<Object>,
    tree: OnceLock<Arc<Tree>>,
}

impl ObservedObject {
    pub(crate) fn new(object: Arc<Object>) -> ObservedObject {
        ObservedObject { object, tree: OnceLock::new() }
    }

    /// The parsed object.
    pub fn tree(&self) -> Arc<Tree> {
        self.tree.get_or_init(|| self.object.tree()).clone()
    }
}

impl Deref for ObservedObject {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.tree.get_or_init(|| self.object.tree())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, recent: &Arc<TreeCache>, size: usize) -> Object {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"3","managedFields":[]}},"x":"{}"}}"#,
            "x".repeat(size)
        );
        let types = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
        Object::read(Bytes::from(text), &Arc::new(types), recent).expect("an object").0
    }

    #[test]
    fn evicted_trees_are_decoded_again() {
        let recent = Arc::default();
        let first = read("a", &recent, 10);
        let tree = Arc::downgrade(&first.tree());
        assert!(tree.upgrade().is_some(), "it is kept");
        let others: Vec<Object> = (0..5).map(|at| read(&at.to_string(), &recent, RECENT_BYTES / 4)).collect();
        assert!(tree.upgrade().is_none(), "others came after it");
        assert!(recent.0.lock().bytes <= RECENT_BYTES);
        assert_eq!((first.tree().str("metadata.name"), first.tree().str("kind")), ("a", "Pod"));
        assert!(!first.tree().at("metadata").has("managedFields"));
        assert_eq!(others[4].tree().str("metadata.name"), "4");
    }

    #[test]
    fn trees_are_dropped_with_their_object() {
        let recent = Arc::default();
        let kept = read("kept", &recent, 10);
        for at in 0..1000 {
            let gone = read(&at.to_string(), &recent, 10);
            let tree = Arc::downgrade(&gone.tree());
            drop(gone.with_index_values(Box::default()));
            assert!(tree.upgrade().is_some(), "the object is there");
            drop(gone);
            assert!(tree.upgrade().is_none(), "the object is dropped");
        }
        let all = recent.0.lock();
        assert_eq!((all.count, all.bytes), (1, kept.bytes().len()));
        assert!(all.made.len() <= 2 + GONE + 1, "{} places", all.made.len());
    }
}
