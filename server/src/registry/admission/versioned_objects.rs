//! The object for a webhook or policy: in the requested version, and a scale instead of its parent. A changed object is
//! converted back.

use api::json::Strict;
use api::status::Status;
use api::{Tree, patch, typed};

use crate::registry::admission::Attributes;
use crate::storage::resource::Resource;

pub(crate) struct VersionedObjects {
    /// Null if the request has none.
    pub object: Tree,
    pub old: Tree,
}

impl VersionedObjects {
    pub(crate) fn new(
        attributes: &Attributes<'_>,
        other: Option<&Resource>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<VersionedObjects, Status> {
        let show = |tree: Option<&Tree>| match tree {
            Some(tree) => show(attributes, other, tree),
            None => Ok(Tree::Null),
        };
        Ok(VersionedObjects { object: show(object)?, old: show(old)? })
    }

    /// Converts the object again after a change.
    pub(crate) fn refresh(
        &mut self,
        attributes: &Attributes<'_>,
        other: Option<&Resource>,
        object: &Tree,
    ) -> Result<(), Status> {
        self.object = show(attributes, other, object)?;
        Ok(())
    }

    /// Applies a webhook's patch to the object; true if that changed it.
    pub(crate) fn patch(
        &self,
        attributes: &Attributes<'_>,
        (name, other): (&str, Option<&Resource>),
        object: Option<&mut Tree>,
        bytes: &[u8],
    ) -> Result<bool, Status> {
        let operations = patch::json::decode(bytes, &mut Strict::default()).map_err(Status::internal)?;
        if operations.is_empty() {
            return Ok(false);
        }
        let Some(object) = object else {
            return Err(Status::internal(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        let patched = patch::json::apply(self.object.clone(), &operations).map_err(Status::internal)?;
        if !matches!(patched, Tree::Map(_)) {
            return Err(Status::internal(format!("admission webhook {name:?} left no object")));
        }
        for key in ["apiVersion", "kind"] {
            if patched.str(key) != self.object.str(key) {
                return Err(Status::internal(format!("admission webhook {name:?} changed {key}")));
            }
        }
        self.replace(attributes, other, patched, object)
    }

    /// Replaces the object with a changed form of the converted one; true if it differs.
    pub(crate) fn replace(
        &self,
        attributes: &Attributes<'_>,
        other: Option<&Resource>,
        mut patched: Tree,
        object: &mut Tree,
    ) -> Result<bool, Status> {
        let (group, version) = crate::storage::resource::split_api_version(patched.str("apiVersion"));
        if let Some(ty) = api::schema::type_of(&group, &version, patched.str("kind")) {
            typed::conform(&mut patched, ty, &mut Strict::default()).map_err(Status::internal)?;
        }
        if patched == self.object {
            return Ok(false);
        }
        apply_patched(attributes, other, patched, object);
        Ok(true)
    }
}

fn show(attributes: &Attributes<'_>, other: Option<&Resource>, tree: &Tree) -> Result<Tree, Status> {
    if attributes.subresource == "scale" {
        let paths = attributes.resource.kind.scale().ok_or_else(Status::no_resource)?;
        return Ok(kinds::scale::from_object(paths, tree));
    }
    Ok(match other {
        Some(other) => attributes.resource.convert(tree.clone(), other),
        None => tree.clone(),
    })
}

fn apply_patched(attributes: &Attributes<'_>, other: Option<&Resource>, mut patched: Tree, object: &mut Tree) {
    let resource = attributes.resource;
    if attributes.subresource == "scale" {
        if let Some(paths) = resource.kind.scale() {
            kinds::scale::apply_to_object(paths, &patched, object);
        }
        return;
    }
    let own_kind = patched.str("kind") == other.unwrap_or(resource).kind.kind();
    if own_kind {
        other.unwrap_or(resource).set_defaults(&mut patched);
    }
    *object = match other {
        Some(other) => other.convert(patched, resource),
        None => patched,
    };
}
