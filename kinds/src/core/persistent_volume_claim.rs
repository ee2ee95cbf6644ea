//! PersistentVolumeClaim.

use api::field::{Errors, Path};
use api::{Tree, tree};

use crate::kind::{Context, Kind, Lifecycle, StatusRules, Subresource, Verb, column, keep_old};
use crate::meta::validate_immutable;
use crate::podspec::claim::{set_spec_defaults, spec_warnings, validate_spec};
use crate::resources::read;
use crate::{cells, internal, prepare};

pub(crate) static KIND: Kind = Kind {
    short_names: &["pvc"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Volume", "string", "", 0),
        column("Capacity", "string", "", 0),
        column("Access Modes", "string", "", 0),
        column("StorageClass", "string", "", 0),
        column("VolumeAttributesClass", "string", "", 0),
        column("Age", "string", "", 0),
        column("VolumeMode", "string", "", 1),
    ],
    set_defaults,
    prepare_create,
    prepare_update,
    validate: |object, errors| validate_spec(object.at("spec"), &Path::root("spec"), errors),
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate_status_update, reset: &["spec"] }),
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
};

pub(super) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) const CLASS_WARNING: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

fn set_defaults(object: &mut Tree) {
    set_spec_defaults(object.child("spec"));
    object.child("status").set_default("phase", "Pending");
}

fn prepare_create(object: &mut Tree, _: &Context<'_>) {
    object.set("status", tree! { "phase" => "Pending" });
    normalize_sources(object.child("spec"), false);
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    normalize_sources(object.child("spec"), old.at("spec").has("dataSource"));
}

/// `dataSource` and `dataSourceRef` are equivalent, the first for claims and snapshots only.
fn normalize_sources(spec: &mut Tree, in_use: bool) {
    // Sources in other namespaces are off by default.
    spec.remove_at("dataSourceRef.namespace");
    if !in_use && spec.has("dataSource") && !is_claim_or_snapshot(spec.at("dataSource")) {
        spec.remove("dataSource");
    }
    if spec.has("dataSource") && !spec.has("dataSourceRef") {
        let source = spec.at("dataSource").clone();
        spec.set("dataSourceRef", source);
    } else if spec.has("dataSourceRef") && !spec.has("dataSource") {
        let source = spec.at("dataSourceRef").clone();
        spec.set("dataSource", source);
    }
}

fn is_claim_or_snapshot(source: &Tree) -> bool {
    matches!(
        (source.str("apiGroup"), source.str("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if object.map("metadata.annotations").contains(CLASS_ANNOTATION) {
        warnings.push(format!("metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_WARNING}"));
    }
    warnings.extend(spec_warnings(object.at("spec"), &Path::root("spec")));
    warnings
}

/// The spec is immutable except for binding, expansion, and setting a class later.
fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new_spec, old_spec) = (object.at("spec"), old.at("spec"));
    validate_spec(new_spec, &Path::root("spec"), errors);
    let class_upgrade = is_class_upgrade(object, old);
    if !class_upgrade {
        validate_class_annotation(object, old, errors);
    }
    let (new_fixed, old_fixed) = fixed_parts(object, old, class_upgrade);
    if new_fixed != old_fixed {
        let diff = internal::difference(&old_fixed, &new_fixed, "PersistentVolumeClaimSpec");
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
             bound claims";
        errors.forbidden(&Path::root("spec"), &format!("{detail}\n{diff}"));
    }
    validate_shrinking(new_spec, old, errors);
    validate_immutable(new_spec.at("volumeMode"), old_spec.at("volumeMode"), &Path::root("volumeMode"), errors);
    validate_attributes_class(new_spec, old_spec, errors);
}

/// Both specs with the mutable parts made equal.
fn fixed_parts(object: &Tree, old: &Tree, class_upgrade: bool) -> (Tree, Tree) {
    let (mut new_spec, mut old_spec) = (object.at("spec").clone(), old.at("spec").clone());
    normalize_sources(&mut old_spec, true);
    if old_spec.str("volumeName").is_empty() {
        keep_old(&mut old_spec, &new_spec, "volumeName");
    }
    if class_upgrade {
        keep_old(&mut new_spec, &old_spec, "storageClassName");
    }
    if object.str("status.phase") == "Bound" {
        keep_old(&mut new_spec, &old_spec, "volumeAttributesClassName");
        if new_spec.at("resources").has("requests") {
            keep_old(new_spec.child("resources.requests"), old_spec.at("resources.requests"), "storage");
        }
    }
    (new_spec, old_spec)
}

/// A claim without a class may get one: that of its annotation, or any if it has none.
fn is_class_upgrade(object: &Tree, old: &Tree) -> bool {
    let annotation = |object: &Tree| {
        object.map("metadata.annotations").get(CLASS_ANNOTATION).and_then(Tree::as_str).map(str::to_string)
    };
    let new_class = object.at("spec.storageClassName").as_str();
    let Some(new_class) = new_class.filter(|_| !old.at("spec").has("storageClassName")) else { return false };
    let (new_mark, old_mark) = (annotation(object), annotation(old));
    let target = old_mark.as_deref().unwrap_or(new_class);
    target == new_class && new_mark.as_deref().is_none_or(|mark| mark == target)
}

fn validate_class_annotation(object: &Tree, old: &Tree, errors: &mut Errors) {
    let mark = |object: &Tree| object.map("metadata.annotations").str(CLASS_ANNOTATION).to_string();
    let (new, old) = (mark(object), mark(old));
    if new != old {
        let path = Path::root("metadata");
        errors.invalid(&path.field("annotations").key(CLASS_ANNOTATION), new, "field is immutable");
    }
}

/// A smaller request can undo a failed expansion, down to the current capacity.
fn validate_shrinking(new_spec: &Tree, old: &Tree, errors: &mut Errors) {
    let size = |list: &api::Map| list.get("storage").map(read).unwrap_or_default();
    let (new, stored) = (size(new_spec.map("resources.requests")), size(old.map("spec.resources.requests")));
    if new < stored && new <= size(old.map("status.capacity")) {
        let path = Path::root("spec.resources.requests.storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
}

fn validate_attributes_class(new_spec: &Tree, old_spec: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.volumeAttributesClassName");
    if !old_spec.str("volumeAttributesClassName").is_empty() {
        match new_spec.at("volumeAttributesClassName").as_str() {
            None => errors.forbidden(&path, "update from non-nil value to nil is forbidden"),
            Some("") => errors.forbidden(&path, "update from non-empty value to empty is forbidden"),
            Some(_) => {}
        }
    }
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    if object.list("spec.accessModes").is_empty() {
        errors.required(&Path::root("Spec.accessModes"), "");
    }
    for path in ["status.capacity", "status.allocatedResources"] {
        for (name, quantity) in object.map(path).iter() {
            let value = read(quantity).value();
            if value < 0 {
                errors.invalid(&Path::root(path).key(name), value, "must be a valid resource quantity");
            }
        }
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let bound = !object.str("spec.volumeName").is_empty();
    let capacity = object.map("status.capacity").get("storage").and_then(Tree::as_str).unwrap_or("0");
    let modes = access_modes(object.list("status.accessModes"));
    vec![
        cells::name(object),
        phase(object),
        Tree::from(object.str("spec.volumeName")),
        Tree::from(if bound { capacity } else { "" }),
        Tree::from(if bound { modes } else { String::new() }),
        class(object),
        cells::text_or(object, "spec.volumeAttributesClassName", "<unset>"),
        cells::age(object, now),
        cells::text_or(object, "spec.volumeMode", "<unset>"),
    ]
}

pub(super) fn phase(object: &Tree) -> Tree {
    let terminating = object.at("metadata").has("deletionTimestamp");
    Tree::from(if terminating { "Terminating" } else { object.str("status.phase") })
}

/// The class of a claim or volume; the beta annotation takes precedence over the field.
pub(super) fn class(object: &Tree) -> Tree {
    match object.map("metadata.annotations").get(CLASS_ANNOTATION) {
        Some(class) => class.clone(),
        None => Tree::from(object.str("spec.storageClassName")),
    }
}

/// `RWO,ROX`: each mode once, in this order.
pub(super) fn access_modes(modes: &[Tree]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown = known.iter().filter(|(mode, _)| modes.iter().any(|other| other.as_str() == Some(mode)));
    shown.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    fn claim(spec: Tree) -> Tree {
        let mut claim = tree! { "spec" => spec };
        let spec = claim.child("spec");
        spec.set_default("accessModes", list!["ReadWriteOnce"]);
        spec.set_default("resources", tree! { "requests" => tree! { "storage" => "1Gi" } });
        claim
    }

    fn check_update(new: Tree, old: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate_update(&new, &old, &mut errors);
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), want);
    }

    #[test]
    fn sources_are_normalized() {
        let mut spec = tree! { "dataSource" => tree! { "kind" => "PersistentVolumeClaim", "name" => "a" } };
        normalize_sources(&mut spec, false);
        assert_eq!(spec.at("dataSource"), spec.at("dataSourceRef"));
        let mut spec = tree! { "dataSource" => tree! { "kind" => "Pod", "name" => "a" } };
        normalize_sources(&mut spec, false);
        assert_eq!(spec, tree! {});
    }

    #[test]
    fn warns_about_annotations_and_fractions() {
        let mut object = claim(tree! { "resources" => tree! { "limits" => tree! { "storage" => "1500m" } } });
        object.set("metadata", tree! { "annotations" => tree! { CLASS_ANNOTATION => "a" } });
        let want = [
            "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead",
            "spec.resources.limits[storage]: fractional byte value \"1500m\" is invalid, must be an integer",
        ];
        assert_eq!(warnings(&object, None), want);
    }

    #[test]
    fn class_can_be_set_once() {
        check_update(claim(tree! { "storageClassName" => "a" }), claim(tree! {}), &[]);
        let (a, b) = (claim(tree! { "storageClassName" => "a" }), claim(tree! { "storageClassName" => "b" }));
        check_update(b, a, &["spec"]);
    }

    #[test]
    fn bound_claims_can_grow() {
        let grown = || claim(tree! { "resources" => tree! { "requests" => tree! { "storage" => "2Gi" } } });
        check_update(grown(), claim(tree! {}), &["spec"]);
        let mut bound = grown();
        bound.set("status", tree! { "phase" => "Bound" });
        check_update(bound, claim(tree! {}), &[]);
    }
}
