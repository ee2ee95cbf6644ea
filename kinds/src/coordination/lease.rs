//! Lease.

use api::Tree;
use api::field::{Errors, Path};

use crate::cells;
use crate::kind::{Kind, Lifecycle, column};

pub(crate) static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Holder", "string", "", 0), column("Age", "string", "", 0)],
    prepare_create: |object, _| drop_election(object, &Tree::Null),
    prepare_update: |object, old, _| drop_election(object, old),
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    create_on_update: true,
    unconditional_update: false,
    cells,
    lifecycle: Lifecycle {
        is_relaxed: |object, old| old.is_some_and(|old| is_renewal(object, old)),
        ..Lifecycle::DEFAULT
    },
    ..Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease")
};

/// Whether the lease was only renewed.
fn is_renewal(object: &Tree, old: &Tree) -> bool {
    let without_time = |tree: &Tree| {
        let mut tree = tree.clone();
        tree.remove_at("spec.renewTime");
        tree.remove_at("metadata.managedFields");
        tree.remove_at("metadata.resourceVersion");
        tree
    };
    without_time(object) == without_time(old)
}

/// Coordinated leader election is off by default; its fields are kept only if stored already.
fn drop_election(object: &mut Tree, old: &Tree) {
    for field in ["strategy", "preferredHolder"] {
        if !old.at("spec").has(field)
            && let Some(spec) = object.get_mut("spec")
        {
            spec.remove(field);
        }
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    if let Some(seconds) = object.int("spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&Path::root("spec.leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(transitions) = object.int("spec.leaseTransitions").filter(|transitions| *transitions < 0) {
        errors.invalid(&Path::root("spec.leaseTransitions"), transitions, "must be greater than or equal to 0");
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(object), Tree::from(object.str("spec.holderIdentity")), cells::age(object, now)]
}
