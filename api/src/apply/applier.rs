//! Apply: merges an object into the live one, prunes fields that its manager no longer sets, and reports conflicts
//! unless forced.

use super::conflict::Conflicts;
use super::last_applied;
use super::managers::{ManagedFields, Manager, Operation, STRIPPED};
use super::merge::merge;
use super::remove::remove_items;
use super::set::FieldSet;
use super::to_set::{to_field_set, with_named_fields};
use super::updater::{Changes, Request, compared, empty_object, put_managed, take_managed, update_managed};
use super::validate::validate;
use crate::schema::TypeRef;
use crate::tree::Tree;

/// The owner of the fields of an object that is first applied without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why an apply was rejected, by response.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplyError {
    /// 400
    BadRequest(String),
    /// 500
    Internal(String),
    /// 409
    Conflict(Conflicts),
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApplyError::BadRequest(text) | ApplyError::Internal(text) => f.write_str(text),
            ApplyError::Conflict(conflicts) => f.write_str(&conflicts.message()),
        }
    }
}

impl std::error::Error for ApplyError {}

/// The new object with its managed fields. `applied` is the decoded patch, neither conformed nor defaulted; the
/// result must be conformed and defaulted. `live` is None if the apply creates.
pub fn apply(live: Option<&Tree>, applied: &Tree, force: bool, request: &Request<'_>) -> Result<Tree, ApplyError> {
    let ty = request.ty().ok_or_else(|| ApplyError::BadRequest(invalid_type(applied)))?;
    check(applied, ty, request)?;
    let zero;
    let (live, managed) = match live {
        None => {
            zero = empty_object(ty);
            (&zero, ManagedFields::default())
        }
        Some(live) => (live, live_managed(live, ty, request)?),
    };
    let applying = ApplyOperation { live, applied, ty, request };
    let mut object = applying.run(managed.clone(), force).or_else(|error| match error {
        ApplyError::Conflict(conflicts) if last_applied::is_kubectl(request) => {
            let allowed = last_applied::allowed(live, ty, request.api_version);
            match allowed.map(|allowed| conflicts.clone().without(&allowed)) {
                None => Err(ApplyError::Conflict(conflicts)),
                Some(rest) if !rest.is_empty() => Err(ApplyError::Conflict(rest)),
                Some(_) => applying.run(managed, true),
            }
        }
        other => Err(other),
    })?;
    if last_applied::is_kubectl(request) {
        last_applied::refresh(&mut object, applied);
    }
    Ok(object)
}

fn live_managed(live: &Tree, ty: TypeRef<'_>, request: &Request<'_>) -> Result<ManagedFields, ApplyError> {
    let managed = ManagedFields::decode(live.list("metadata.managedFields"))
        .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;
    if !managed.is_empty() {
        return Ok(managed);
    }
    let before = Request { manager: BEFORE_FIRST_APPLY, now: request.now.clone(), ..*request };
    Ok(update_managed(&empty_object(ty), live, managed, ty, &before))
}

fn invalid_type(applied: &Tree) -> String {
    format!("invalid object type: {}", gvk_text(applied))
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for the core group.
fn gvk_text(tree: &Tree) -> String {
    let api_version = tree.str("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", tree.str("kind"))
}

fn check(applied: &Tree, ty: TypeRef<'_>, request: &Request<'_>) -> Result<(), ApplyError> {
    if applied.str("apiVersion") != request.api_version || applied.str("kind") != ty.kind() {
        return Err(ApplyError::BadRequest(invalid_type(applied)));
    }
    if !applied.at("metadata.managedFields").is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_string()));
    }
    validate(applied, ty).map_err(|problems| {
        let (namespace, name) = (applied.str("metadata.namespace"), applied.str("metadata.name"));
        let gvk = gvk_text(applied);
        ApplyError::Internal(format!("failed to create typed patch object ({namespace}/{name}; {gvk}): {problems}"))
    })
}

struct ApplyOperation<'a> {
    live: &'a Tree,
    applied: &'a Tree,
    ty: TypeRef<'a>,
    request: &'a Request<'a>,
}

impl ApplyOperation<'_> {
    fn run(&self, mut managed: ManagedFields, force: bool) -> Result<Tree, ApplyError> {
        self.drop_unknown_versions(&mut managed);
        let merged = merge(self.live, self.applied, self.ty);
        let last = self.exchange(&mut managed);
        let own = managed.managers.last().cloned().unwrap_or_else(|| self.request.manager(Operation::Apply));
        let mut object = match &last {
            Some(last) if !last.fields.is_empty() => self.prune(merged, &managed, last),
            _ => merged,
        };
        let comparison = compared(self.live, &object, self.ty, self.request);
        let changes = Changes::new(self.live, &object, &comparison, self.request);
        let conflicts = Conflicts::new(changes.take_from(&mut managed, Some(&own)));
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflict(conflicts));
        }
        self.finish(&mut managed, &own, last, !comparison.is_same());
        if comparison.is_same() {
            object = self.live.clone();
        }
        take_managed(&mut object);
        put_managed(&mut object, managed);
        Ok(object)
    }

    fn drop_unknown_versions(&self, managed: &mut ManagedFields) {
        managed.managers.retain(|manager| self.request.versions.ty(&manager.api_version).is_some());
    }

    /// Appends the manager's new entry and returns the previous one.
    fn exchange(&self, managed: &mut ManagedFields) -> Option<Manager> {
        let mut fields = to_field_set(self.applied, self.ty);
        if let Some(reset) = self.request.reset {
            fields = fields.recursive_difference(reset);
        }
        let own = Manager { fields, ..self.request.manager(Operation::Apply) };
        let last = managed.position(&own).map(|at| managed.managers.remove(at));
        managed.managers.push(own);
        last
    }

    /// The entry's time is updated only if the object changed; a first apply without changes has none.
    fn finish(&self, managed: &mut ManagedFields, own: &Manager, last: Option<Manager>, changed: bool) {
        if let Some(at) = managed.position(own) {
            let entry = &mut managed.managers[at];
            entry.fields.subtract(&STRIPPED);
            entry.time = match changed {
                true => Some(self.request.now.clone()),
                false => last.and_then(|last| last.time),
            };
        }
        managed.drop_empty();
    }

    /// Removes what the manager applied last time and no longer does, unless another manager owns it.
    fn prune(&self, merged: Tree, managed: &ManagedFields, last: &Manager) -> Tree {
        let (own_version, versions) = (self.request.api_version, self.request.versions);
        let in_last = match versions.convert(&merged, own_version, &last.api_version) {
            Some(converted) => converted,
            None => return merged,
        };
        let Some(ty) = versions.ty(&last.api_version) else { return merged };
        let named_last = with_named_fields(&last.fields, ty);
        let pruned = remove_items(&in_last, &named_last, ty);
        let pruned = self.add_back_owned(&in_last, pruned, managed, &last.api_version);
        // Only fields owned by the manager are removed.
        let gone = named_difference(&in_last, &pruned, ty).intersection(&named_last);
        let pruned = remove_items(&in_last, &gone, ty);
        versions.convert(&pruned, &last.api_version, own_version).unwrap_or(merged)
    }

    fn add_back_owned(&self, merged: &Tree, mut pruned: Tree, managed: &ManagedFields, version: &str) -> Tree {
        let versions = self.request.versions;
        let mut done: Vec<&str> = Vec::new();
        for manager in &managed.managers {
            let other = manager.api_version.as_str();
            if done.contains(&other) {
                continue;
            }
            done.push(other);
            let Some(ty) = versions.ty(other) else { continue };
            let Some(merged) = versions.convert(merged, version, other) else { continue };
            let Some(kept) = versions.convert(&pruned, version, other) else { continue };
            let owned = owned_in(managed, other, ty);
            let gone = named_difference(&merged, &kept, ty).difference(&owned);
            let kept = remove_items(&merged, &gone, ty);
            if let Some(converted) = versions.convert(&kept, other, version) {
                pruned = converted;
            }
        }
        pruned
    }
}

fn owned_in(managed: &ManagedFields, version: &str, ty: TypeRef<'_>) -> FieldSet {
    let of_version = managed.managers.iter().filter(|manager| manager.api_version == version);
    of_version.fold(FieldSet::new(), |owned, manager| owned.union(&with_named_fields(&manager.fields, ty)))
}

/// The fields of one object that another does not have.
fn named_difference(whole: &Tree, part: &Tree, ty: TypeRef<'_>) -> FieldSet {
    let whole = with_named_fields(&to_field_set(whole, ty), ty);
    whole.difference(&with_named_fields(&to_field_set(part, ty), ty))
}
