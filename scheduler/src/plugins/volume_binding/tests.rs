use api::{Tree, list, tree};

use super::*;
use crate::framework::PreFilter;
use crate::snapshot::Snapshot;
use crate::testing::{FixedObjects, ObjectBuilder, node, pod};

fn claim(name: &str, class: &str) -> Tree {
    let requests = tree! { "requests" => tree! { "storage" => "1Gi" } };
    tree! {
        "metadata" => tree! { "name" => name, "namespace" => "default", "uid" => name },
        "spec" => tree! { "storageClassName" => class, "accessModes" => list!["ReadWriteOnce"], "resources" => requests },
    }
}

fn user_of(name: &str, claim: &str) -> ObjectBuilder {
    let volume = tree! { "persistentVolumeClaim" => tree! { "claimName" => claim } };
    pod(name).with("spec.volumes", list![volume])
}

fn world() -> Snapshot {
    let mut objects = FixedObjects::default();
    let class = |name: &str, provisioner: &str| {
        let mode = "WaitForFirstConsumer";
        tree! { "metadata" => tree! { "name" => name }, "provisioner" => provisioner, "volumeBindingMode" => mode }
    };
    objects.put(Kind::StorageClass, class("local", "kubernetes.io/no-provisioner"));
    objects.put(Kind::StorageClass, class("made", "csi"));
    let spec = tree! {
        "storageClassName" => "local", "capacity" => tree! { "storage" => "2Gi" }, "accessModes" => list!["ReadWriteOnce"],
    };
    let volume = tree! {
        "metadata" => tree! { "name" => "v" }, "spec" => spec, "status" => tree! { "phase" => "Available" },
    };
    objects.put(Kind::PersistentVolume, volume);
    for (name, class) in [("one", "local"), ("two", "local"), ("shared", "made")] {
        objects.put(Kind::PersistentVolumeClaim, claim(name, class));
    }
    let mut snapshot = Snapshot::new(Arc::new(objects));
    snapshot.put_node(node("a").node());
    snapshot.put_node(node("b").node());
    snapshot
}

/// Whether the pod fits the node; then its volumes are assumed there.
fn take(plugin: &VolumeBinding, snapshot: &Snapshot, pod: &ObjectBuilder, node: &str) -> bool {
    let pod = pod.pod();
    let cycle = Cycle { snapshot, pod: &pod };
    let PreFilter::Check(slot) = plugin.pre_filter(cycle) else { panic!("it has claims") };
    let state = snapshot.find(node).expect("the node is there");
    plugin.filter(cycle, &slot, state).is_ok() && plugin.reserve(cycle, &slot, state).is_ok()
}

#[test]
fn volumes_are_assigned_once() {
    let (plugin, snapshot) = (VolumeBinding::new(Duration::ZERO, Arc::default()), world());
    let other_profile = VolumeBinding::new(Duration::ZERO, plugin.assumed.clone());
    assert!(take(&plugin, &snapshot, &user_of("p", "one"), "a"));
    assert!(!take(&plugin, &snapshot, &user_of("q", "two"), "a"), "it has been taken");
    assert!(!take(&other_profile, &snapshot, &user_of("q", "two"), "a"), "for all profiles");
    assert!(take(&plugin, &snapshot, &user_of("p", "one"), "b"), "the claim may be assigned again");
    plugin.unreserve(&user_of("p", "one").pod(), "b");
    assert!(take(&plugin, &snapshot, &user_of("q", "two"), "a"));
}

#[test]
fn users_of_a_claim_follow_its_volume() {
    let (plugin, snapshot) = (VolumeBinding::new(Duration::ZERO, Arc::default()), world());
    assert!(take(&plugin, &snapshot, &user_of("p", "shared"), "a"));
    assert!(!take(&plugin, &snapshot, &user_of("q", "shared"), "b"));
    assert!(take(&plugin, &snapshot, &user_of("q", "shared"), "a"));
    plugin.unreserve(&user_of("p", "shared").pod(), "a");
    assert!(!take(&plugin, &snapshot, &user_of("r", "shared"), "b"), "another still counts on it");
    plugin.unreserve(&user_of("q", "shared").pod(), "a");
    assert!(take(&plugin, &snapshot, &user_of("r", "shared"), "b"));
}
