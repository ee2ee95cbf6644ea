//! The managed fields of a scale subresource: those of its parent that own the replicas.

use super::managers::{EntryError, ManagedFields, Manager};
use super::set::{Element, FieldSet};
use crate::tree::{Str, Tree};

const SCALE_VERSION: &str = "autoscaling/v1";
const SCALE_REPLICAS: &str = "spec.replicas";

/// The path of the replicas in a version of the parent: `("apps/v1", "spec.replicas")`.
pub type ReplicasPath<'a> = (&'a str, &'a str);

fn path_of(text: &str) -> Vec<Element> {
    text.split('.').map(Element::field).collect()
}

fn find(paths: &[ReplicasPath<'_>], api_version: &str) -> Option<Vec<Element>> {
    paths.iter().find(|(version, _)| *version == api_version).map(|(_, path)| path_of(path))
}

/// The `managedFields` of the scale for a parent with these entries.
pub fn scale_from_parent(parent: &[Tree], paths: &[ReplicasPath<'_>]) -> Result<Tree, EntryError> {
    let mut managed = ManagedFields::decode(parent)?;
    managed.managers.retain(|manager| find(paths, &manager.api_version).is_some_and(|path| manager.fields.has(&path)));
    for manager in &mut managed.managers {
        manager.fields = FieldSet::of(&[SCALE_REPLICAS]);
        manager.api_version = Str::const_new(SCALE_VERSION);
    }
    Ok(managed.encode())
}

/// The parent's `managedFields` after its scale was written with these entries. A new entry has no time, as in
/// upstream.
pub fn parent_from_scale(
    parent: &[Tree],
    scale: &[Tree],
    api_version: &str,
    paths: &[ReplicasPath<'_>],
) -> Result<Tree, EntryError> {
    let mut managed = ManagedFields::decode(parent)?;
    let mut scales = ManagedFields::decode(scale)?.managers;
    managed.managers.retain_mut(|manager| {
        let Some(path) = find(paths, &manager.api_version) else { return false };
        if !manager.fields.has(&path) {
            return true;
        }
        match scales.iter().position(|scale| scale.is_same(manager)) {
            Some(at) => drop(scales.swap_remove(at)),
            None => manager.fields = manager.fields.difference(&FieldSet::from_path(&path)),
        }
        true
    });
    let replicas = find(paths, api_version).map(|path| FieldSet::from_path(&path)).unwrap_or_default();
    for scale in scales.into_iter().filter(|scale| scale.fields.has(&path_of(SCALE_REPLICAS))) {
        let fields = replicas.clone();
        let manager = Manager { fields, api_version: Str::new(api_version), time: None, ..scale };
        match managed.position(&manager) {
            Some(at) => {
                let entry = &mut managed.managers[at];
                entry.fields = entry.fields.union(&manager.fields);
            }
            None => managed.managers.push(manager),
        }
    }
    managed.drop_empty();
    Ok(managed.encode())
}
