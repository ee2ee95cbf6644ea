//! Objects beside pods and nodes that plugins look at, such as claims and budgets. They are read where they
//! are kept; a test puts its own in place.

use std::sync::Arc;

use api::Tree;

/// What is kept.
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
}

pub trait Objects: Send + Sync {
    /// By `NAMESPACE/NAME`, or `NAME` of one without a namespace.
    fn get(&self, kind: Kind, key: &str) -> Option<Arc<Tree>>;

    /// In the order of their keys.
    fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Tree>>;

    /// In the order of their keys.
    fn all(&self, kind: Kind) -> Vec<Arc<Tree>>;
}

/// A cluster of pods and nodes alone.
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
