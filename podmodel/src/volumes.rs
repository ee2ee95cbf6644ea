//! Volumes of a pod that bear on where it can go. Others are left out.

use api::{Str, Tree};

use super::texts;

/// A volume that restricts where its pod can run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Volume {
    Claim {
        name: Str,
        read_only: bool,
    },
    /// Its claim is called after the pod and the volume.
    Ephemeral {
        volume: Str,
    },
    GcePersistentDisk {
        name: Str,
        read_only: bool,
    },
    AwsElasticBlockStore {
        id: Str,
        read_only: bool,
    },
    Rbd {
        monitors: Vec<Str>,
        pool: Str,
        image: Str,
        read_only: bool,
    },
    Iscsi {
        iqn: Str,
        read_only: bool,
    },
}

impl Volume {
    /// Reads a volume of a pod; None if it restricts nothing.
    pub fn read(volume: &Tree) -> Option<Volume> {
        let text = |path: &str| Str::new(volume.str(path));
        if volume.has("persistentVolumeClaim") {
            let read_only = volume.bool("persistentVolumeClaim.readOnly");
            return Some(Volume::Claim { name: text("persistentVolumeClaim.claimName"), read_only });
        }
        if volume.has("ephemeral") {
            return Some(Volume::Ephemeral { volume: text("name") });
        }
        if volume.has("gcePersistentDisk") {
            let read_only = volume.bool("gcePersistentDisk.readOnly");
            return Some(Volume::GcePersistentDisk { name: text("gcePersistentDisk.pdName"), read_only });
        }
        if volume.has("awsElasticBlockStore") {
            let read_only = volume.bool("awsElasticBlockStore.readOnly");
            return Some(Volume::AwsElasticBlockStore { id: text("awsElasticBlockStore.volumeID"), read_only });
        }
        if volume.has("rbd") {
            let monitors = texts(volume.list("rbd.monitors"));
            let (pool, image) = (text("rbd.pool"), text("rbd.image"));
            return Some(Volume::Rbd { monitors, pool, image, read_only: volume.bool("rbd.readOnly") });
        }
        let read_only = volume.bool("iscsi.readOnly");
        volume.has("iscsi").then(|| Volume::Iscsi { iqn: text("iscsi.iqn"), read_only })
    }

    /// The name of the claim behind it, for a pod of this name.
    pub fn claim(&self, pod: &str) -> Option<Str> {
        match self {
            Volume::Claim { name, .. } => Some(name.clone()),
            Volume::Ephemeral { volume } => Some(Str::from(format!("{pod}-{volume}"))),
            _ => None,
        }
    }
}
