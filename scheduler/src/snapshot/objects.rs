//! Objects besides pods and nodes that plugins read, such as claims and budgets, from the informers' stores or from a
//! test.

use std::sync::Arc;

use api::Tree;

/// The kinds of these objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    DeviceTaintRule,
}

/// The objects that plugins read besides pods and nodes.
pub trait Objects: Send + Sync {
    /// By `NAMESPACE/NAME`, or `NAME` of a cluster-scoped object.
    fn get(&self, kind: Kind, key: &str) -> Option<Arc<Tree>>;

    /// Sorted by key.
    fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Tree>>;

    /// Sorted by key.
    fn all(&self, kind: Kind) -> Vec<Arc<Tree>>;
}

/// A cluster without other objects.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoObjects;

impl Objects for NoObjects {
    fn get(&self, _: Kind, _: &str) -> Option<Arc<Tree>> {
        None
    }

    fn in_namespace(&self, _: Kind, _: &str) -> Vec<Arc<Tree>> {
        Vec::new()
    }

    fn all(&self, _: Kind) -> Vec<Arc<Tree>> {
        Vec::new()
    }
}
