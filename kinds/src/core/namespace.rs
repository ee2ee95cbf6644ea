//! Namespace. Its `spec.finalizers` can only be changed by the finalize subresource.

use api::field::{Errors, Path};
use api::validation::qualified_name;
use api::{Tree, tree};

use crate::kind::{Context, Kind, Lifecycle, StatusRules, Subresource, Verb, column, keep_old, selectable};
use crate::{cells, meta, names, prepare};

/// Namespace.
pub static KIND: Kind = Kind {
    short_names: &["ns"],
    verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
    subresources: &[
        Subresource { name: "finalize", gvk: None, verbs: &[Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[column("Name", "string", "name", 0), column("Status", "string", "", 0), column("Age", "string", "", 0)],
    selectable: &[selectable("status.phase")],
    validate_name: names::dns_label,
    set_defaults,
    prepare_create,
    prepare_update,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate_status_update, reset: &["spec"] }),
    cells,
    lifecycle: Lifecycle {
        spec_finalizers: true,
        mark_deleted: |object| object.child("status").set("phase", "Terminating"),
        ..Lifecycle::RETURNS_DELETED
    },
    ..Kind::cluster("", "v1", "Namespace", "namespaces", "namespace")
};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// Allows selecting a namespace by its name label.
fn set_defaults(object: &mut Tree) {
    let name = object.str("metadata.name").to_string();
    if !name.is_empty() && object.map("metadata.labels").str(NAME_LABEL) != name {
        object.child("metadata.labels").set(NAME_LABEL, name);
    }
}

fn prepare_create(object: &mut Tree, _: &Context<'_>) {
    object.set("status", tree! { "phase" => "Active" });
    let finalizers = object.child("spec").list_entry("finalizers");
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER)) {
        finalizers.push(Tree::from(FINALIZER));
    }
    // A generated name was not set when defaults were applied.
    set_defaults(object);
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    keep_old(object.child("spec"), old.at("spec"), "finalizers");
}

/// The finalize subresource only changes `spec.finalizers`.
pub fn prepare_finalize(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
}

fn validate(object: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.finalizers");
    for finalizer in object.list("spec.finalizers") {
        validate_finalizer(finalizer.as_str().unwrap_or(""), &path, errors);
    }
}

fn validate_finalizer(finalizer: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, finalizer, qualified_name(finalizer));
    meta::validate_finalizer_domain(finalizer, path, errors);
}

/// Validates a finalize request.
pub fn validate_finalize(object: &Tree, _: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.finalizers");
    for (index, finalizer) in object.list("spec.finalizers").iter().enumerate() {
        validate_finalizer(finalizer.as_str().unwrap_or(""), &path.index(index), errors);
    }
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    let phase = object.str("status.phase");
    let path = Path::root("status.Phase");
    match object.at("metadata").has("deletionTimestamp") {
        false if phase != "Active" => {
            errors.invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
        true if phase != "Terminating" => {
            errors.invalid(&path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
        }
        _ => {}
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(object), Tree::from(object.str("status.phase")), cells::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;
    use api::list;

    #[test]
    fn a_new_namespace_is_active_and_finalized_by_kubernetes() {
        let mut object =
            tree! { "metadata" => tree! { "name" => "a" }, "spec" => tree! { "finalizers" => list!["e.com/x"] } };
        prepare_create(&mut object, &Context { now: 0, user: &User::default() });
        assert_eq!(object.at("spec.finalizers"), &list!["e.com/x", "kubernetes"]);
        assert_eq!(object.str("status.phase"), "Active");
        assert_eq!(object.map("metadata.labels").str(NAME_LABEL), "a");
    }

    #[test]
    fn phase_follows_the_deletion_timestamp() {
        let check = |meta: Tree, phase: &str, want: usize| {
            let mut errors = Errors::new();
            let object = tree! { "metadata" => meta, "status" => tree! { "phase" => phase } };
            validate_status_update(&object, &Tree::Null, &mut errors);
            assert_eq!(errors.len(), want, "{phase}");
        };
        check(tree! {}, "Active", 0);
        check(tree! {}, "Terminating", 1);
        check(tree! { "deletionTimestamp" => "t" }, "Active", 1);
        check(tree! { "deletionTimestamp" => "t" }, "Terminating", 0);
    }
}
