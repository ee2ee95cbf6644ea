//! Matches volumes to claims.

use std::sync::Arc;

use api::Tree;
use api::quantity::Quantity;
use api::selector::Selector;

use crate::support::volumes::{class_of, is_deleting, is_for};

/// Why the volume that a claim names cannot be bound to it.
pub(crate) fn mismatch(volume: &Tree, claim: &Tree) -> Option<String> {
    let attributes = |object: &Tree| object.str("spec.volumeAttributesClassName").to_string();
    if is_deleting(volume) {
        return Some(format!("the volume is marked for deletion {:?}", volume.str("metadata.name")));
    }
    let checks = [
        (capacity(volume) < request(claim), "requested PV is too small"),
        (class_of(volume) != class_of(claim), "storageClassName does not match"),
        (attributes(volume) != attributes(claim), "volumeAttributesClassName does not match"),
        (mode(volume) != mode(claim), "incompatible volumeMode"),
        (!has_modes(volume, claim), "incompatible accessMode"),
    ];
    checks.into_iter().find(|(fails, _)| *fails).map(|(_, why)| why.to_string())
}

/// The best volume for a claim: one reserved for it; otherwise, unless binding is delayed, the one with the fewest
/// extra access modes and then the smallest.
pub(crate) fn best(claim: &Tree, volumes: &[Arc<Tree>], waits: bool) -> Option<Arc<Tree>> {
    let fits = |volume: &&Arc<Tree>| {
        let size = capacity(volume) >= request(claim);
        size && mode(volume) == mode(claim) && has_modes(volume, claim) && !is_deleting(volume)
    };
    let candidates: Vec<&Arc<Tree>> = volumes.iter().filter(fits).collect();
    if let Some(own) = candidates.iter().find(|volume| is_for(volume, claim)) {
        return Some((*own).clone());
    }
    if waits {
        return None;
    }
    let selector = selector(claim);
    let is_free = |volume: &&&Arc<Tree>| {
        volume.str("status.phase") == "Available"
            && volume.at("spec.claimRef").is_null()
            && class_of(volume) == class_of(claim)
            && volume.str("spec.volumeAttributesClassName") == claim.str("spec.volumeAttributesClassName")
            && selector.as_ref().is_none_or(|selector| selector.matches_map(volume.map("metadata.labels")))
    };
    let rank = |volume: &&&Arc<Tree>| {
        (volume.list("spec.accessModes").len(), capacity(volume), volume.str("metadata.name").to_string())
    };
    candidates.iter().filter(is_free).min_by_key(rank).map(|volume| (*volume).clone())
}

/// None if there is no selector; an invalid selector matches nothing.
fn selector(claim: &Tree) -> Option<Selector> {
    let selector = claim.at("spec.selector");
    (!selector.is_null()).then(|| Selector::from_object(selector).unwrap_or_else(|_| Selector::nothing()))
}

pub(crate) fn mode(object: &Tree) -> &str {
    match object.str("spec.volumeMode") {
        "" => "Filesystem",
        mode => mode,
    }
}

fn has_modes(volume: &Tree, claim: &Tree) -> bool {
    claim.list("spec.accessModes").iter().all(|mode| volume.list("spec.accessModes").contains(mode))
}

fn capacity(volume: &Tree) -> Quantity {
    Quantity::parse(volume.str("spec.capacity.storage")).unwrap_or_default()
}

pub(crate) fn request(claim: &Tree) -> Quantity {
    Quantity::parse(claim.str("spec.resources.requests.storage")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn claim(spec: Tree) -> Tree {
        let mut claim = tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "c", "uid" => "u" },
            "spec" => tree! {
                "storageClassName" => "s",
                "accessModes" => list!["ReadWriteOnce"],
                "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
            },
        };
        for (key, value) in spec.as_map().into_iter().flat_map(api::Map::iter) {
            claim.child("spec").set(key, value.clone());
        }
        claim
    }

    fn volume(name: &str, size: &str, modes: &[&str]) -> Tree {
        let modes: Vec<Tree> = modes.iter().map(|mode| Tree::from(*mode)).collect();
        tree! {
            "metadata" => tree! { "name" => name, "labels" => tree! { "name" => name } },
            "spec" => tree! {
                "storageClassName" => "s",
                "accessModes" => modes,
                "capacity" => tree! { "storage" => size },
            },
            "status" => tree! { "phase" => "Available" },
        }
    }

    fn check(claim: &Tree, volumes: &[Tree], waits: bool, want: Option<&str>) {
        let volumes: Vec<Arc<Tree>> = volumes.iter().cloned().map(Arc::new).collect();
        let got = best(claim, &volumes, waits);
        assert_eq!(got.as_ref().map(|volume| volume.str("metadata.name")), want, "{claim:?}");
    }

    #[test]
    fn binds_the_smallest_match() {
        let volumes = [
            volume("large", "5Gi", &["ReadWriteOnce"]),
            volume("small", "512Mi", &["ReadWriteOnce"]),
            volume("both", "1Gi", &["ReadWriteOnce", "ReadWriteMany"]),
            volume("right", "2Gi", &["ReadWriteOnce"]),
        ];
        check(&claim(tree! {}), &volumes, false, Some("right"));
        check(&claim(tree! { "accessModes" => list!["ReadWriteMany"] }), &volumes, false, Some("both"));
        check(&claim(tree! { "storageClassName" => "other" }), &volumes, false, None);
        check(&claim(tree! { "volumeMode" => "Block" }), &volumes, false, None);
        check(&claim(tree! { "volumeAttributesClassName" => "gold" }), &volumes, false, None);
        let labels = tree! { "matchLabels" => tree! { "name" => "large" } };
        check(&claim(tree! { "selector" => labels }), &volumes, false, Some("large"));
        check(&claim(tree! {}), &volumes, true, None);
    }

    #[test]
    fn reserved_volumes_come_first() {
        let own = |uid: &str| {
            let mut volume = volume("own", "5Gi", &["ReadWriteOnce"]);
            volume.child("spec").set("claimRef", tree! { "namespace" => "n", "name" => "c", "uid" => uid });
            volume
        };
        let free = volume("free", "1Gi", &["ReadWriteOnce"]);
        check(&claim(tree! {}), &[free.clone(), own("")], false, Some("own"));
        check(&claim(tree! {}), &[free.clone(), own("u")], true, Some("own"));
        check(&claim(tree! {}), &[free, own("other")], false, Some("free"));
    }

    #[test]
    fn ignores_deleted_and_bound_volumes() {
        let mut going = volume("a", "1Gi", &["ReadWriteOnce"]);
        going.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        let mut released = volume("b", "1Gi", &["ReadWriteOnce"]);
        released.child("status").set("phase", "Released");
        check(&claim(tree! {}), &[going, released], false, None);
    }

    #[test]
    fn reports_mismatches() {
        let check = |volume: &Tree, claim: &Tree, want: Option<&str>| {
            assert_eq!(mismatch(volume, claim).as_deref(), want);
        };
        let good = volume("v", "1Gi", &["ReadWriteOnce"]);
        check(&good, &claim(tree! {}), None);
        check(&volume("v", "1Mi", &["ReadWriteOnce"]), &claim(tree! {}), Some("requested PV is too small"));
        check(&good, &claim(tree! { "storageClassName" => "x" }), Some("storageClassName does not match"));
        check(&good, &claim(tree! { "volumeMode" => "Block" }), Some("incompatible volumeMode"));
        check(&good, &claim(tree! { "accessModes" => list!["ReadOnlyMany"] }), Some("incompatible accessMode"));
        let mut going = good.clone();
        going.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        check(&going, &claim(tree! {}), Some("the volume is marked for deletion \"v\""));
    }
}
