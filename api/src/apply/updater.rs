//! Ownership after a write other than apply: changed fields belong to its manager.

use super::compare::{Comparison, compare};
use super::managers::{ManagedFields, Manager, Operation, STRIPPED, is_reset};
use super::set::FieldSet;
use super::validate::validate;
use crate::schema::{Ty, TypeRef};
use crate::tree::{Str, Tree};
use crate::typed;

/// The served versions of a kind. Managers name their fields in the version they used.
pub trait Versions {
    /// The kind's type in a version; None if it is not served, whose managers are dropped.
    fn ty(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// The object in another version.
    fn convert(&self, tree: &Tree, from: &str, to: &str) -> Option<Tree>;
}

/// A kind that has one version.
pub struct SameVersion<'a> {
    /// The only version.
    pub api_version: &'a str,
    /// The type of objects in that version.
    pub ty: TypeRef<'a>,
}

impl Versions for SameVersion<'_> {
    fn ty(&self, api_version: &str) -> Option<TypeRef<'_>> {
        (api_version == self.api_version).then_some(self.ty)
    }

    fn convert(&self, tree: &Tree, from: &str, to: &str) -> Option<Tree> {
        (from == to).then(|| tree.clone())
    }
}

/// The write and its manager.
pub struct Request<'a> {
    /// `fieldManager`, or the prefix of the user agent.
    pub manager: &'a str,
    /// The version of the request's object: `apps/v1`.
    pub api_version: &'a str,
    /// `status`, `scale`, or empty for the object itself.
    pub subresource: &'a str,
    /// The time of the write, for new and changed entries.
    pub now: Str,
    /// Fields that this endpoint does not write: `status` on the object itself, `spec` on its status.
    pub reset: Option<&'a FieldSet>,
    /// Converts objects and field names between versions.
    pub versions: &'a dyn Versions,
}

impl Request<'_> {
    pub(super) fn manager(&self, operation: Operation) -> Manager {
        Manager {
            name: Str::new(if self.manager.is_empty() { "unknown" } else { self.manager }),
            operation,
            api_version: Str::new(self.api_version),
            subresource: Str::new(self.subresource),
            time: None,
            fields: FieldSet::new(),
        }
    }

    pub(super) fn ty(&self) -> Option<TypeRef<'_>> {
        self.versions.ty(self.api_version)
    }
}

/// Updates `metadata.managedFields` of a new object. `live` is None for a create. An empty list of managed fields in
/// `new`, or one empty entry, drops them all; no list or an invalid one keeps the live ones.
pub fn update(live: Option<&Tree>, new: &mut Tree, request: &Request<'_>) {
    let managed = managed_of(live, new, request);
    take_managed(new);
    // An object without managed fields is not tracked until it is applied again.
    if managed.is_empty() && live.is_some() {
        return;
    }
    let Some(ty) = request.ty() else { return };
    let managed = match live {
        Some(_) if !is_declared_in_all(new, &managed, request) => managed,
        Some(live) => update_managed(live, new, managed, ty, request),
        None => update_managed(&empty_object(ty), new, managed, ty, request),
    };
    put_managed(new, managed);
}

/// Whether every version in which a manager has fields declares the fields of a custom resource. If one does not, the
/// write changes no ownership, as in upstream: changes cannot be compared in that version.
fn is_declared_in_all(new: &Tree, managed: &ManagedFields, request: &Request<'_>) -> bool {
    let mut others: Vec<&str> = managed.managers.iter().map(|manager| manager.api_version.as_str()).collect();
    others.sort_unstable();
    others.dedup();
    others.into_iter().filter(|version| *version != request.api_version).all(|version| {
        let Some(ty @ TypeRef::Custom(_)) = request.versions.ty(version) else { return true };
        let converted = request.versions.convert(new, request.api_version, version);
        converted.is_none_or(|converted| validate(&converted, ty).is_ok())
    })
}

/// An object of which nothing is set. A custom resource has no fields that are always present.
pub(super) fn empty_object(ty: TypeRef<'_>) -> Tree {
    match ty {
        TypeRef::Table(ty) => typed::zero(Ty::Struct(ty)),
        TypeRef::Custom(_) => Tree::map_new(),
    }
}

/// Preserves an empty list of managed fields, which means a reset, when the object is conformed: call it on the
/// decoded or patched object before.
pub fn keep_reset(tree: &mut Tree) {
    if let Some(Tree::List(entries)) = tree.at_mut("metadata.managedFields")
        && entries.is_empty()
    {
        entries.push(Tree::map_new());
    }
}

fn managed_of(live: Option<&Tree>, new: &Tree, request: &Request<'_>) -> ManagedFields {
    let given = new.at("metadata.managedFields");
    if request.subresource.is_empty() {
        if is_reset(given) {
            return ManagedFields::default();
        }
        match ManagedFields::decode(given.as_list().unwrap_or(&[])) {
            Ok(managed) if !managed.is_empty() => return managed,
            _ => {}
        }
    }
    let live = live.map(|live| live.list("metadata.managedFields")).unwrap_or(&[]);
    ManagedFields::decode(live).unwrap_or_default()
}

pub(super) fn take_managed(tree: &mut Tree) {
    tree.remove_at("metadata.managedFields");
}

pub(super) fn put_managed(tree: &mut Tree, managed: ManagedFields) {
    match managed.encode() {
        Tree::Null => {}
        entries => tree.child("metadata").set("managedFields", entries),
    }
}

/// The managers after an update; the manager's time is updated only if it acquired fields.
pub(super) fn update_managed(
    live: &Tree,
    new: &Tree,
    mut managed: ManagedFields,
    ty: TypeRef<'_>,
    request: &Request<'_>,
) -> ManagedFields {
    let comparison = compared(live, new, ty, request);
    let changes = Changes::new(live, new, &comparison, request);
    changes.take_from(&mut managed, None);
    managed.drop_empty();
    let mut taken = comparison.modified.joined(comparison.added);
    taken.subtract(&STRIPPED);
    if !taken.is_empty() {
        let manager = Manager { fields: taken, time: Some(request.now.clone()), ..request.manager(Operation::Update) };
        add_manager(&mut managed, manager);
    }
    managed.cap();
    managed
}

fn add_manager(managed: &mut ManagedFields, mut manager: Manager) {
    if let Some(at) = managed.position(&manager) {
        let previous = managed.managers.swap_remove(at);
        manager.fields = manager.fields.joined(previous.fields);
    }
    managed.managers.push(manager);
}

pub(super) fn compared(live: &Tree, new: &Tree, ty: TypeRef<'_>, request: &Request<'_>) -> Comparison {
    let comparison = compare(live, new, ty);
    match request.reset {
        Some(reset) => comparison.exclude(reset),
        None => comparison,
    }
}

/// The changes of a write in each manager's version.
pub(super) struct Changes<'a> {
    live: &'a Tree,
    new: &'a Tree,
    comparison: &'a Comparison,
    request: &'a Request<'a>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(
        live: &'a Tree,
        new: &'a Tree,
        comparison: &'a Comparison,
        request: &'a Request<'a>,
    ) -> Changes<'a> {
        Changes { live, new, comparison, request }
    }

    /// Removes changed and removed fields from all managers except one; managers of unserved versions are dropped.
    /// Returns the changed fields, which an apply conflicts with.
    pub(super) fn take_from(&self, managed: &mut ManagedFields, but: Option<&Manager>) -> Vec<(Manager, FieldSet)> {
        let mut conflicts = Vec::new();
        let mut other_versions: Vec<(Str, Comparison)> = Vec::new();
        managed.managers.retain_mut(|manager| {
            if but.is_some_and(|but| but.is_same(manager)) {
                return true;
            }
            let Some(comparison) = self.seen_by(&manager.api_version, &mut other_versions) else { return false };
            let mut taken = FieldSet::new();
            for changed in [&comparison.modified, &comparison.added] {
                if manager.fields.intersects(changed) {
                    taken = taken.union(&manager.fields.intersection(changed));
                }
            }
            if !taken.is_empty() {
                conflicts.push((Manager { fields: FieldSet::new(), ..manager.clone() }, taken.clone()));
                manager.fields.subtract(&taken);
            }
            manager.fields.subtract(&comparison.removed);
            true
        });
        conflicts
    }

    fn seen_by<'b>(&'b self, api_version: &str, others: &'b mut Vec<(Str, Comparison)>) -> Option<&'b Comparison> {
        if api_version == self.request.api_version {
            return Some(self.comparison);
        }
        let at = match others.iter().position(|(version, _)| version == api_version) {
            Some(at) => at,
            None => {
                others.push((Str::new(api_version), self.compared_in(api_version)?));
                others.len() - 1
            }
        };
        Some(&others[at].1)
    }

    fn compared_in(&self, api_version: &str) -> Option<Comparison> {
        let Request { versions, api_version: own, .. } = self.request;
        let ty = versions.ty(api_version)?;
        let live = versions.convert(self.live, own, api_version)?;
        let new = versions.convert(self.new, own, api_version)?;
        Some(compared(&live, &new, ty, self.request))
    }
}

/// If the objects only differ in the times of managed fields, the old times are kept.
pub fn keep_timestamps(live: &Tree, new: &mut Tree) {
    let old_entries = live.list("metadata.managedFields");
    let new_entries = new.list("metadata.managedFields");
    let same = old_entries.len() == new_entries.len()
        && old_entries.iter().zip(new_entries).all(|(old, new)| equal_but(old, new, "time"));
    if same && !old_entries.is_empty() && equal_objects(live, new) {
        let entries = Tree::List(old_entries.to_vec());
        new.child("metadata").set("managedFields", entries);
    }
}

fn equal_objects(old: &Tree, new: &Tree) -> bool {
    equal_but(old, new, "metadata") && equal_but(old.at("metadata"), new.at("metadata"), "managedFields")
}

fn equal_but(old: &Tree, new: &Tree, name: &str) -> bool {
    match (old, new) {
        (Tree::Map(old), Tree::Map(new)) => {
            let others = |(key, _): &(&str, &Tree)| *key != name;
            old.iter().filter(others).eq(new.iter().filter(others))
        }
        _ => old == new,
    }
}
