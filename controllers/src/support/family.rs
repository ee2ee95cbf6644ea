//! Children and their controlling owners: which owners a change affects, and which objects may belong to an owner.

use std::sync::Arc;

use api::Tree;
use api::selector::Selector;
use client::index::{self, Index};
use client::{Change, Informer, Key, Queue, Store};

use super::owner;

/// Objects without a controller, by namespace.
pub(crate) const ORPHANS: Index = Index { name: "orphans", values: orphans };

fn orphans(object: &Tree) -> Vec<String> {
    let is_orphan = owner::controller_of(object).is_none();
    is_orphan.then(|| object.str("metadata.namespace").to_string()).into_iter().collect()
}

/// A kind that controls others by a selector.
#[derive(Clone, Copy)]
pub(crate) struct ParentKind {
    pub kind: &'static str,
    /// The selector of an object of this kind.
    pub selector: fn(&Tree) -> Selector,
}

impl ParentKind {
    /// Queues parents when one of their children changes, or one that they may adopt.
    pub(crate) fn follow(self, children: &Informer, parents: &Arc<Store>, queue: &Arc<Queue>) {
        children.index_by(index::CONTROLLER).index_by(ORPHANS);
        let (parents, queue) = (parents.clone(), queue.clone());
        children.on_change(move |change| {
            self.affected_parents(change, &parents).into_iter().for_each(|key| queue.add(key))
        });
    }

    fn affected_parents(self, change: &Change, parents: &Store) -> Vec<Key> {
        let versions = [change.old.as_deref(), change.new.as_deref()];
        let mut keys: Vec<Key> = versions.into_iter().flatten().filter_map(|child| self.key_of_parent(child)).collect();
        if let Some(orphan) = newly_orphaned(change) {
            let labels = orphan.map("metadata.labels");
            let there = parents.in_namespace(orphan.str("metadata.namespace")).into_iter();
            let choosers = there.filter(|parent| (self.selector)(parent).matches_map(labels));
            keys.extend(choosers.map(|parent| client::key_of(&parent)));
        }
        keys.dedup();
        keys
    }

    pub(crate) fn key_of_parent(self, child: &Tree) -> Option<Key> {
        let reference = owner::controller_of(child).filter(|reference| reference.str("kind") == self.kind)?;
        Some(client::key(child.str("metadata.namespace"), reference.str("name")))
    }
}

/// The child, if it has just become an orphan or its labels have changed.
fn newly_orphaned(change: &Change) -> Option<&Tree> {
    let new = change.new.as_deref().filter(|new| owner::controller_of(new).is_none())?;
    let is_known = change.old.as_deref().is_some_and(|old| {
        owner::controller_of(old).is_none() && old.at("metadata.labels") == new.at("metadata.labels")
    });
    (!is_known).then_some(new)
}

/// The objects that an owner controls, and the objects that it may adopt.
pub(crate) fn candidates(children: &Store, owner: &Tree) -> Vec<Arc<Tree>> {
    let mut found = children.find(index::CONTROLLER, owner.str("metadata.uid"));
    found.extend(children.find(ORPHANS, owner.str("metadata.namespace")));
    found
}

/// The selector of most kinds; an invalid one matches nothing.
pub(crate) fn label_selector(object: &Tree) -> Selector {
    Selector::from_object(object.at("spec.selector")).unwrap_or_else(|_| Selector::nothing())
}
