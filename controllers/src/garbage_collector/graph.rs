//! The ownership graph, built from the observed objects. Pure: every change returns the objects to process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::object::{Interner, Object, Owner, TypeMeta, Uid};

#[derive(Debug, Default)]
pub(super) struct Graph {
    objects: BTreeMap<Uid, Object>,
    /// By the owner in their references, whether or not it was observed. No entry is empty.
    dependents: BTreeMap<Uid, Dependents>,
    pub intern: Interner,
}

#[derive(Debug, Default)]
struct Dependents {
    uids: BTreeSet<Uid>,
    /// The owner was deleted; its uid is never reused.
    gone: bool,
    /// References to the owner that match no object on the server.
    absent: BTreeSet<OwnerDescription>,
}

/// An owner as a dependent's owner reference describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerDescription {
    pub uid: Uid,
    pub of: Arc<TypeMeta>,
    pub name: Box<str>,
    /// The namespace of the dependent: the owner is in the same namespace or cluster-scoped.
    pub namespace: Arc<str>,
}

impl OwnerDescription {
    pub(super) fn new(object: &Object, owner: &Owner) -> OwnerDescription {
        OwnerDescription {
            uid: owner.uid.clone(),
            of: owner.of.clone(),
            name: owner.name.clone(),
            namespace: object.namespace.clone(),
        }
    }
}

/// The objects to process after a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct WorkItems {
    pub now: Vec<Uid>,
    /// Their owner was not observed yet: it may arrive through another watch.
    pub soon: Vec<Uid>,
    /// Dependents with owners in another namespace.
    pub foreign: Vec<(Uid, OwnerDescription)>,
}

/// The state of an owner, from the point of view of its dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// The owner exists and keeps its dependent.
    Solid,
    /// The owner waits for the deletion of its dependents.
    Waiting,
    Dangling,
    /// Must be looked up on the server.
    Unknown,
}

impl Graph {
    pub(super) fn get(&self, uid: &Uid) -> Option<&Object> {
        self.objects.get(uid)
    }

    #[cfg(test)]
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    pub(crate) fn dependents_of(&self, owner: &Uid) -> impl Iterator<Item = &Object> {
        let uids = self.dependents.get(owner).into_iter().flat_map(|dependents| &dependents.uids);
        uids.filter_map(|uid| self.objects.get(uid))
    }

    /// Adds or updates an object. Older versions than the known one are ignored.
    pub(super) fn put(&mut self, object: Object) -> WorkItems {
        let mut work_items = WorkItems::default();
        let uid = object.uid.clone();
        if self.objects.get(&uid).is_some_and(|known| known.version > object.version) {
            return work_items;
        }
        let old = self.objects.insert(uid.clone(), object);
        let Some(new) = self.objects.get(&uid) else { return work_items };
        let owners_moved = old.as_ref().is_none_or(|old| old.owners != new.owners);
        if owners_moved {
            follow_owners(&mut self.dependents, old.as_ref(), new);
            self.check_owners(old.as_ref(), new, &mut work_items);
        }
        if old.is_none() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.gone = false;
            }
            self.check_dependents(new, &mut work_items);
        }
        self.check_deletion(old.as_ref(), new, &mut work_items);
        work_items
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, uid: &Uid) -> WorkItems {
        let mut work_items = WorkItems::default();
        let Some(object) = self.objects.remove(uid) else { return work_items };
        for owner in &object.owners {
            remove_dependent(&mut self.dependents, &owner.uid, uid);
            if self.objects.get(&owner.uid).is_some_and(Object::deletes_dependents) {
                work_items.now.push(owner.uid.clone());
            }
        }
        if let Some(dependents) = self.dependents.get_mut(uid) {
            dependents.gone = true;
            work_items.now.extend(dependents.uids.iter().cloned());
        }
        work_items
    }

    /// The objects of a type that are missing in a complete list.
    pub(super) fn missing(&self, of: &TypeMeta, kept: &BTreeSet<Uid>) -> Vec<Uid> {
        let gone = |object: &&Object| *object.of == *of && !kept.contains(&object.uid);
        self.objects.values().filter(gone).map(|object| object.uid.clone()).collect()
    }

    /// Whether an object with a foreground deletion waits for itself through other such objects.
    pub(crate) fn is_in_cycle(&self, object: &Object) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![&object.uid];
        while let Some(owner) = open.pop() {
            for waiting in self.dependents_of(owner).filter(|one| one.deletes_dependents() && one.blocks(owner)) {
                if waiting.uid == object.uid {
                    return true;
                }
                if seen.insert(&waiting.uid) {
                    open.push(&waiting.uid);
                }
            }
        }
        false
    }

    /// The owner does not exist on the server.
    pub(crate) fn note_absent(&mut self, owner: OwnerDescription) {
        if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
            dependents.absent.insert(owner);
        }
    }

    /// Records that the deletion of the object was requested, or that the request failed.
    pub(crate) fn note_delete_requested(&mut self, uid: &Uid, delete_requested: bool) {
        if let Some(object) = self.objects.get_mut(uid) {
            object.delete_requested = delete_requested;
        }
    }

    pub(crate) fn owner_state(&self, object: &Object, owner: &Owner) -> OwnerState {
        let seen = self.objects.get(&owner.uid).filter(|seen| seen.matches_reference(owner, &object.namespace));
        if let Some(seen) = seen {
            return if seen.deletes_dependents() { OwnerState::Waiting } else { OwnerState::Solid };
        }
        let is_absent = |dependents: &Dependents| {
            dependents.gone || dependents.absent.contains(&OwnerDescription::new(object, owner))
        };
        if self.dependents.get(&owner.uid).is_some_and(is_absent) { OwnerState::Dangling } else { OwnerState::Unknown }
    }

    fn check_owners(&self, old: Option<&Object>, new: &Object, work_items: &mut WorkItems) {
        let unblocked = old.into_iter().flat_map(|old| &old.owners).filter(|owner| {
            let still = new.owners.iter().any(|other| other.uid == owner.uid && other.blocks);
            owner.blocks && !still && self.objects.get(&owner.uid).is_some_and(Object::deletes_dependents)
        });
        work_items.now.extend(unblocked.map(|owner| owner.uid.clone()));
        let mut soon = false;
        let mut now = false;
        for owner in &new.owners {
            let seen = self.objects.get(&owner.uid);
            match self.owner_state(new, owner) {
                OwnerState::Solid => {}
                OwnerState::Unknown if seen.is_none() => soon = true,
                OwnerState::Waiting | OwnerState::Dangling | OwnerState::Unknown => now = true,
            }
            work_items.foreign.extend(seen.filter(|seen| is_foreign(seen, new)).map(|_| foreign(new, owner)));
        }
        if now {
            work_items.now.push(new.uid.clone());
        } else if soon {
            work_items.soon.push(new.uid.clone());
        }
    }

    /// When an owner is first observed, dependents may have described it incorrectly.
    fn check_dependents(&self, new: &Object, work_items: &mut WorkItems) {
        for dependent in self.dependents_of(&new.uid) {
            for owner in dependent.owners.iter().filter(|owner| owner.uid == new.uid) {
                if !new.matches_reference(owner, &dependent.namespace) {
                    work_items.now.push(dependent.uid.clone());
                    work_items.foreign.extend(is_foreign(new, dependent).then(|| foreign(dependent, owner)));
                }
            }
        }
    }

    fn check_deletion(&self, old: Option<&Object>, new: &Object, work_items: &mut WorkItems) {
        let starts = |state: fn(&Object) -> bool| state(new) && !old.is_some_and(state);
        if starts(Object::deletes_dependents) {
            work_items.now.extend(self.dependents_of(&new.uid).map(|dependent| dependent.uid.clone()));
        }
        if starts(Object::deletes_dependents) || starts(Object::orphans_dependents) {
            work_items.now.push(new.uid.clone());
        }
    }
}

fn is_foreign(owner: &Object, dependent: &Object) -> bool {
    !owner.namespace.is_empty() && owner.namespace != dependent.namespace
}

fn foreign(dependent: &Object, owner: &Owner) -> (Uid, OwnerDescription) {
    (dependent.uid.clone(), OwnerDescription::new(dependent, owner))
}

fn follow_owners(dependents: &mut BTreeMap<Uid, Dependents>, old: Option<&Object>, new: &Object) {
    for owner in &new.owners {
        dependents.entry(owner.uid.clone()).or_default().uids.insert(new.uid.clone());
    }
    for owner in old.into_iter().flat_map(|old| &old.owners) {
        if new.owners.iter().all(|other| other.uid != owner.uid) {
            remove_dependent(dependents, &owner.uid, &new.uid);
        }
    }
}

fn remove_dependent(dependents: &mut BTreeMap<Uid, Dependents>, owner: &Uid, uid: &Uid) {
    let Some(entry) = dependents.get_mut(owner) else { return };
    entry.uids.remove(uid);
    if entry.uids.is_empty() {
        dependents.remove(owner);
    }
}
