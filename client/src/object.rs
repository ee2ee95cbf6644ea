//! An object as an informer keeps it: its JSON, and what indexes found in it. A tree is made when
//! somebody looks, and the trees of a process that were made last are kept up to a limit.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use api::{Str, Tree, json};
use bytes::Bytes;

use crate::Key;

/// Trees of this much JSON are kept; a tree takes about three times that.
const RECENT_BYTES: usize = 8 << 20;

/// The trees that were made last, of all informers of a process.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    trees: VecDeque<(Arc<Tree>, usize)>,
    bytes: usize,
}

impl Recent {
    fn keep(&self, tree: Arc<Tree>, bytes: usize) {
        let mut dropped = Vec::new();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        kept.trees.push_back((tree, bytes));
        while kept.bytes > RECENT_BYTES && kept.trees.len() > 1 {
            let Some((oldest, bytes)) = kept.trees.pop_front() else { break };
            kept.bytes -= bytes;
            dropped.push(oldest);
        }
        // The lock goes first: taking a tree apart takes longer than all of the above.
        drop(kept);
    }
}

/// What all objects of a resource say of their type. Items of a list do not carry it themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMeta {
    pub api_version: Str,
    pub kind: Str,
}

#[derive(Debug)]
pub struct Object {
    pub key: Key,
    pub uid: Str,
    pub revision: u64,
    bytes: Bytes,
    types: Arc<TypeMeta>,
    /// Where the object is found: the name of an index and a value.
    pub(crate) places: Box<[(&'static str, Str)]>,
    made: Mutex<Weak<Tree>>,
    recent: Arc<Recent>,
}

impl Object {
    /// None where the bytes are no object with a name and a revision.
    pub(crate) fn read(bytes: Bytes, types: &Arc<TypeMeta>, recent: &Arc<Recent>) -> Option<(Object, Arc<Tree>)> {
        let tree = Arc::new(decode(&bytes, types)?);
        let (key, revision) = (key_of(&tree), revision_of(&tree)?);
        let uid = Str::new(tree.str("metadata.uid"));
        let made = Mutex::new(Arc::downgrade(&tree));
        recent.keep(tree.clone(), bytes.len());
        let object = Object {
            key,
            uid,
            revision,
            bytes,
            types: types.clone(),
            places: Box::default(),
            made,
            recent: recent.clone(),
        };
        Some((object, tree))
    }

    /// The object's JSON; in one process with the server the very bytes that it keeps.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn with_places(&self, places: Box<[(&'static str, Str)]>) -> Object {
        Object {
            key: self.key.clone(),
            uid: self.uid.clone(),
            revision: self.revision,
            bytes: self.bytes.clone(),
            types: self.types.clone(),
            places,
            made: Mutex::new(self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            recent: self.recent.clone(),
        }
    }

    pub fn tree(&self) -> Arc<Tree> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = made.upgrade() {
            return tree;
        }
        // It was decoded once already, so that it decodes.
        let tree = Arc::new(decode(&self.bytes, &self.types).unwrap_or_default());
        *made = Arc::downgrade(&tree);
        drop(made);
        self.recent.keep(tree.clone(), self.bytes.len());
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

pub fn key_of(object: &Tree) -> Key {
    let meta = object.at("metadata");
    key(meta.str("namespace"), meta.str("name"))
}

/// The key of an object; one of the whole cluster has no namespace.
pub fn key(namespace: &str, name: &str) -> Key {
    match namespace {
        "" => Key::from(name),
        namespace => Key::from(format!("{namespace}/{name}")),
    }
}

/// Namespace, or "", and name.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

pub fn revision_of(object: &Tree) -> Option<u64> {
    object.str("metadata.resourceVersion").parse().ok()
}

/// An object at some moment; the tree is there once it is looked at.
#[derive(Debug, Clone)]
pub struct Seen {
    object: Arc<Object>,
    tree: OnceLock<Arc<Tree>>,
}

impl Seen {
    pub(crate) fn new(object: Arc<Object>) -> Seen {
        Seen { object, tree: OnceLock::new() }
    }

    pub fn tree(&self) -> Arc<Tree> {
        self.tree.get_or_init(|| self.object.tree()).clone()
    }
}

impl Deref for Seen {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.tree.get_or_init(|| self.object.tree())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, recent: &Arc<Recent>, size: usize) -> Object {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"3","managedFields":[]}},"x":"{}"}}"#,
            "x".repeat(size)
        );
        let types = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
        Object::read(Bytes::from(text), &Arc::new(types), recent).expect("an object").0
    }

    #[test]
    fn trees_are_made_again_once_others_have_taken_their_place() {
        let recent = Arc::default();
        let first = read("a", &recent, 10);
        let tree = Arc::downgrade(&first.tree());
        assert!(tree.upgrade().is_some(), "it is kept");
        let others: Vec<Object> = (0..5).map(|at| read(&at.to_string(), &recent, RECENT_BYTES / 4)).collect();
        assert!(tree.upgrade().is_none(), "others came after it");
        assert!(recent.0.lock().expect("kept").bytes <= RECENT_BYTES);
        assert_eq!((first.tree().str("metadata.name"), first.tree().str("kind")), ("a", "Pod"));
        assert!(!first.tree().at("metadata").has("managedFields"));
        assert_eq!(others[4].tree().str("metadata.name"), "4");
    }
}
