//! A cluster as plain objects for the reference, and as a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use stdx::sync::Mutex;

use crate::snapshot::{Kind, Objects, Snapshot};
use oracle::ClusterState;
use podmodel::{Labels, Node, Pod};

/// Objects by kind and key, which a test may change.
#[derive(Default)]
pub(super) struct ObjectStore(Mutex<BTreeMap<(Kind, String), Arc<Tree>>>);

impl ObjectStore {
    pub(super) fn put(&self, kind: Kind, object: &Tree) {
        let key = client::key_of(object).to_string();
        self.objects().insert((kind, key), Arc::new(object.clone()));
    }

    fn objects(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<(Kind, String), Arc<Tree>>> {
        self.0.lock()
    }
}

impl Objects for ObjectStore {
    fn get(&self, kind: Kind, key: &str) -> Option<Arc<Tree>> {
        self.objects().get(&(kind, key.to_string())).cloned()
    }

    fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Tree>> {
        let inside = |object: &Arc<Tree>| object.str("metadata.namespace") == namespace;
        self.all(kind).into_iter().filter(inside).collect()
    }

    fn all(&self, kind: Kind) -> Vec<Arc<Tree>> {
        self.objects().iter().filter(|((known, _), _)| *known == kind).map(|(_, object)| object.clone()).collect()
    }
}

pub(super) fn snapshot(world: &ClusterState) -> (Snapshot, Arc<ObjectStore>) {
    let kept = Arc::new(ObjectStore::default());
    let kinds: [(Kind, &[Tree]); 11] = [
        (Kind::Service, &world.services),
        (Kind::ReplicationController, &world.replication_controllers),
        (Kind::ReplicaSet, &world.replica_sets),
        (Kind::StatefulSet, &world.stateful_sets),
        (Kind::PersistentVolumeClaim, &world.claims),
        (Kind::PersistentVolume, &world.volumes),
        (Kind::StorageClass, &world.classes),
        (Kind::CsiNode, &world.csi_nodes),
        (Kind::CsiDriver, &world.csi_drivers),
        (Kind::CsiStorageCapacity, &world.capacities),
        (Kind::VolumeAttachment, &world.attachments),
    ];
    let mut snapshot = Snapshot::new(kept.clone());
    for (kind, objects) in kinds {
        for object in objects {
            kept.put(kind, object);
            snapshot.object_changed(kind, None, Some(object));
        }
    }
    for namespace in &world.namespaces {
        put_namespace(&mut snapshot, namespace);
    }
    world.nodes.iter().for_each(|node| snapshot.put_node(Node::read(node)));
    world.pods.iter().for_each(|pod| snapshot.put_pod(Arc::new(Pod::read(pod))));
    (snapshot, kept)
}

pub(crate) fn put_namespace(snapshot: &mut Snapshot, namespace: &Tree) {
    snapshot.set_namespace(namespace.str("metadata.name"), Some(Labels::read(namespace.map("metadata.labels"))));
}
