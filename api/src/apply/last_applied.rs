//! Migration from client-side to server-side apply: the annotation of `kubectl apply` determines which fields kubectl
//! may take over without a conflict.

use super::compare::compare;
use super::set::FieldSet;
use super::to_set::to_field_set;
use super::updater::Request;
use crate::json;
use crate::schema::TypeRef;
use crate::tree::{Str, Tree};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Only kubectl's own manager migrates; another name opts out.
pub(super) fn is_kubectl(request: &Request<'_>) -> bool {
    request.manager == "kubectl"
}

/// The fields of the last client-side apply that still have their values. None without a valid annotation of the same
/// version.
pub(super) fn allowed(live: &Tree, ty: TypeRef<'_>, api_version: &str) -> Option<FieldSet> {
    let text = live.map("metadata.annotations").get(ANNOTATION)?.as_str()?;
    let last = json::decode(text.as_bytes()).ok()?;
    if last.str("apiVersion") != api_version {
        return None;
    }
    let changed = compare(&last, live, ty);
    let fields = to_field_set(&last, ty);
    Some(fields.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Updates the annotation, if any, with the applied object.
pub(super) fn refresh(object: &mut Tree, applied: &Tree) {
    let Some(slot) = object.at_mut("metadata.annotations").and_then(|annotations| annotations.get_mut(ANNOTATION))
    else {
        return;
    };
    let mut applied = applied.clone();
    if let Some(annotations) = applied.at_mut("metadata.annotations") {
        annotations.remove(ANNOTATION);
    }
    let mut text = json::encode(&applied, None);
    text.push(b'\n');
    *slot = Tree::Str(Str::from_utf8_lossy(&text));
}
