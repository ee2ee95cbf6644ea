//! The watched resources, and how their changes reach the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use client::{Change, Informers, Resource, Selection, Store};
use stdx::sync::Mutex;
use tokio::time::Instant;

use super::{LIVING_PODS, NAMESPACES, NODES, Shared};
use crate::core::Core;
use crate::snapshot::{Kind, Objects};

/// Resources that plugins read besides pods, nodes and namespaces.
const WATCHED: [(Kind, Resource); 16] = [
    (Kind::PersistentVolumeClaim, Resource::core("persistentvolumeclaims")),
    (Kind::PersistentVolume, Resource::core("persistentvolumes")),
    (Kind::StorageClass, Resource::new("storage.k8s.io", "v1", "storageclasses")),
    (Kind::CsiNode, Resource::new("storage.k8s.io", "v1", "csinodes")),
    (Kind::CsiDriver, Resource::new("storage.k8s.io", "v1", "csidrivers")),
    (Kind::CsiStorageCapacity, Resource::new("storage.k8s.io", "v1", "csistoragecapacities")),
    (Kind::VolumeAttachment, Resource::new("storage.k8s.io", "v1", "volumeattachments")),
    (Kind::Service, Resource::core("services")),
    (Kind::ReplicationController, Resource::core("replicationcontrollers")),
    (Kind::ReplicaSet, Resource::new("apps", "v1", "replicasets")),
    (Kind::StatefulSet, Resource::new("apps", "v1", "statefulsets")),
    (Kind::ResourceClaim, Resource::new("resource.k8s.io", "v1", "resourceclaims")),
    (Kind::ResourceSlice, Resource::new("resource.k8s.io", "v1", "resourceslices")),
    (Kind::DeviceClass, Resource::new("resource.k8s.io", "v1", "deviceclasses")),
    (Kind::DeviceTaintRule, Resource::new("resource.k8s.io", "v1", "devicetaintrules")),
    (Kind::PodDisruptionBudget, Resource::new("policy", "v1", "poddisruptionbudgets")),
];

/// Objects in the informers' stores.
pub(super) struct Stores(BTreeMap<Kind, Arc<Store>>);

impl Stores {
    pub(super) fn new(informers: &Informers) -> Stores {
        let store = |(kind, resource)| (kind, informers.informer(Selection::all(resource)).store().clone());
        Stores(WATCHED.map(store).into())
    }
}

impl Objects for Stores {
    fn get(&self, kind: Kind, key: &str) -> Option<Arc<Tree>> {
        self.0.get(&kind)?.get(key)
    }

    fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Tree>> {
        self.0.get(&kind).map(|store| store.in_namespace(namespace)).unwrap_or_default()
    }

    fn all(&self, kind: Kind) -> Vec<Arc<Tree>> {
        self.0.get(&kind).map(|store| store.all()).unwrap_or_default()
    }
}

/// Connects the informers to the core.
pub(super) fn follow(shared: &Arc<Shared>, informers: &Informers) {
    let hears = |selection: Selection, how: fn(&mut Core, &Change, Instant)| {
        let shared = shared.clone();
        informers.informer(selection).on_change(move |change| shared.take(change, how));
    };
    hears(LIVING_PODS, pod_changed);
    let pod_changes_sender = shared.pod_changes.clone();
    informers.informer(LIVING_PODS).on_change(move |change| pod_changes_sender.changed(&change.key));
    hears(Selection::all(NODES), |core, change, now| core.node_changed(&change.key, change.new.as_deref(), now));
    hears(Selection::all(NAMESPACES), |core, change, now| {
        core.namespace_changed(&change.key, change.new.as_deref(), now);
    });
    for (kind, resource) in WATCHED {
        let shared = shared.clone();
        informers.informer(Selection::all(resource)).on_change(move |change| {
            shared.take(change, |core, change, now| {
                core.object_changed(kind, change.old.as_deref(), change.new.as_deref(), now);
            });
            if matches!(kind, Kind::PersistentVolumeClaim | Kind::ResourceClaim) {
                shared.handle.changes.changed(&change.key);
            }
        });
    }
}

fn pod_changed(core: &mut Core, change: &Change, now: Instant) {
    match (&change.old, &change.new) {
        (_, Some(new)) => core.pod_changed(new, now),
        (Some(old), None) => core.pod_deleted(old.str("metadata.uid"), now),
        (None, None) => {}
    }
}

/// Leaks the name: there are as many as a process has profiles.
pub(crate) fn leak_name(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_string().into_boxed_str());
    names.push(kept);
    kept
}
