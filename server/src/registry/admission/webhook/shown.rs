//! An object as a webhook sees it: in the version that the webhook requests, a scale instead of its parent. A patch is
//! converted back.

use api::json::Strict;
use api::status::Status;
use api::{Tree, patch, typed};

use super::matching::Invocation;
use crate::registry::admission::Attributes;
use crate::storage::resource::Resource;

pub(super) struct Shown {
    /// Null where there is none.
    pub object: Tree,
    pub old: Tree,
}

impl Shown {
    pub(super) fn new(
        attributes: &Attributes<'_>,
        invocation: &Invocation<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<Shown, Status> {
        let show = |tree: Option<&Tree>| match tree {
            Some(tree) => show(attributes, invocation.other.as_deref(), tree),
            None => Ok(Tree::Null),
        };
        Ok(Shown { object: show(object)?, old: show(old)? })
    }

    /// Applies a webhook's patch to the object; true if that changed it.
    pub(super) fn patch(
        &self,
        attributes: &Attributes<'_>,
        invocation: &Invocation<'_>,
        object: Option<&mut Tree>,
        bytes: &[u8],
    ) -> Result<bool, Status> {
        let operations = patch::json::decode(bytes, &mut Strict::default()).map_err(Status::internal)?;
        if operations.is_empty() {
            return Ok(false);
        }
        let name = &invocation.hook.name;
        let Some(object) = object else {
            return Err(Status::internal(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        let mut patched = patch::json::apply(self.object.clone(), &operations).map_err(Status::internal)?;
        if !matches!(patched, Tree::Map(_)) {
            return Err(Status::internal(format!("admission webhook {name:?} left no object")));
        }
        for key in ["apiVersion", "kind"] {
            if patched.str(key) != self.object.str(key) {
                return Err(Status::internal(format!("admission webhook {name:?} changed {key}")));
            }
        }
        let (group, version) = crate::storage::resource::split_api_version(patched.str("apiVersion"));
        if let Some(ty) = api::schema::type_of(&group, &version, patched.str("kind")) {
            typed::conform(&mut patched, ty, &mut Strict::default()).map_err(Status::internal)?;
        }
        if patched == self.object {
            return Ok(false);
        }
        take_back(attributes, invocation.other.as_deref(), patched, object);
        Ok(true)
    }
}

fn show(attributes: &Attributes<'_>, other: Option<&Resource>, tree: &Tree) -> Result<Tree, Status> {
    if attributes.subresource == "scale" {
        return kinds::scale::from_object(attributes.resource.kind, tree).ok_or_else(Status::no_resource);
    }
    Ok(match other {
        Some(other) => attributes.resource.convert(tree.clone(), other),
        None => tree.clone(),
    })
}

fn take_back(attributes: &Attributes<'_>, other: Option<&Resource>, mut patched: Tree, object: &mut Tree) {
    let resource = attributes.resource;
    if attributes.subresource == "scale" {
        kinds::scale::apply_to_object(resource.kind, &patched, object);
        return;
    }
    let own_kind = patched.str("kind") == other.map_or(resource.kind, |other| other.kind).kind;
    if own_kind {
        other.unwrap_or(resource).set_defaults(&mut patched);
    }
    *object = match other {
        Some(other) => other.convert(patched, resource),
        None => patched,
    };
}
