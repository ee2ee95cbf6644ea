//! Volumes of CSI drivers: processes with a socket. Published volumes are recorded beside the pod, so that they can be
//! unpublished after a restart.

mod node_info;
mod record;
mod registry;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::ordered;
use cri::grpc::Channel;
use stdx::sync::{Mutex, MutexGuard};

use super::mountinfo;
pub(crate) use record::{KIND, Record};
pub(crate) use registry::{DevicePluginHandler, RegistrationContext};
use wire::{NodeUnpublishVolume, NodeUnstageVolume, capability};

/// A registered driver.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) channel: Channel,
    capabilities: BTreeSet<i32>,
}

impl Driver {
    pub(crate) fn can(&self, what: i32) -> bool {
        self.capabilities.contains(&what)
    }
}

/// A driver that is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub struct UnknownDriver(String);

/// A volume that its driver has not unpublished.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// The driver is not registered.
    #[error(transparent)]
    Driver(#[from] UnknownDriver),
    /// The driver has failed.
    #[error(transparent)]
    Rpc(#[from] wire::RpcError),
    /// A directory could not be removed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(crate) struct Csi {
    root: PathBuf,
    drivers: Mutex<BTreeMap<String, Driver>>,
    /// Volumes that must not be detached from this node, by their names in its status.
    in_use: ordered::Sender<BTreeSet<String>>,
    /// Serializes staging and unstaging of one volume.
    busy: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Serializes changes of the node's list of drivers.
    showing: tokio::sync::Mutex<()>,
}

impl Csi {
    pub(crate) fn new(root: &Path) -> Csi {
        let csi = Csi {
            root: root.to_owned(),
            drivers: Mutex::default(),
            in_use: ordered::Sender::default(),
            busy: Mutex::default(),
            showing: tokio::sync::Mutex::default(),
        };
        csi.count();
        csi
    }

    fn registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    fn drivers(&self) -> MutexGuard<'_, BTreeMap<String, Driver>> {
        self.drivers.lock()
    }

    fn add(&self, name: &str, driver: Driver) {
        self.drivers().insert(name.to_string(), driver);
    }

    fn drop_driver(&self, name: &str) {
        self.drivers().remove(name);
    }

    pub(crate) fn driver(&self, name: &str) -> Result<Driver, UnknownDriver> {
        let driver = self.drivers().get(name).cloned();
        driver.ok_or_else(|| UnknownDriver(name.to_string()))
    }

    pub(crate) fn in_use(&self) -> ordered::Receiver<BTreeSet<String>> {
        self.in_use.subscribe()
    }

    /// Reads the records, and updates the volumes in use.
    fn count(&self) {
        let found: BTreeSet<String> = self.records().iter().filter_map(Record::unique_name).collect();
        if *self.in_use.borrow() != found {
            self.in_use.send_replace(found);
        }
    }

    /// Records that a pod uses a volume, and updates the volumes in use.
    pub(crate) fn note(&self, record: &Record, node: &str) -> io::Result<()> {
        record.write(node)?;
        self.count();
        Ok(())
    }

    fn records(&self) -> Vec<Record> {
        Record::all(&self.root)
    }

    pub(crate) async fn lock_volume(&self, driver: &str, handle: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut busy = self.busy.lock();
            busy.retain(|_, lock| Arc::strong_count(lock) > 1);
            busy.entry(format!("{driver}^{handle}")).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// The path at which a volume is staged for all pods of the node.
    pub(crate) fn staging(&self, record: &Record) -> PathBuf {
        let plugin = self.root.join("plugins/kubernetes.io/csi");
        match record.is_block {
            true => plugin.join("volumeDevices/staging").join(&record.name),
            false => plugin.join(&record.driver).join(sha256(&record.handle)).join("globalmount"),
        }
    }

    /// The path at which a volume is published for one pod.
    pub(crate) fn target(&self, record: &Record, uid: &str) -> PathBuf {
        match record.is_block {
            true => self.root.join("plugins/kubernetes.io/csi/volumeDevices/publish").join(&record.name).join(uid),
            false => record.dir.join("mount"),
        }
    }

    /// Records that the driver is about to be called: from now on the volume has to be unpublished.
    pub(crate) fn begin(&self, record: &Record, node: &str) -> io::Result<()> {
        Record { is_begun: true, ..record.clone() }.write(node)
    }

    /// Unpublishes all volumes of a pod, and unstages those that no other pod needs.
    pub(crate) async fn unpublish_pod(&self, pod_dir: &Path, uid: &str) -> Result<(), CsiError> {
        for record in Record::of_pod(pod_dir) {
            let _alone = self.lock_volume(&record.driver, &record.handle).await;
            if record.is_begun {
                self.unpublish(&record, uid).await?;
            }
            record.remove()?;
            self.count();
        }
        Ok(())
    }

    /// The driver is called whatever the state of its directories: a directory behind a dead mount cannot be read, and
    /// a directory that a call in flight will create does not exist yet. CSI allows a volume to be unpublished twice.
    async fn unpublish(&self, record: &Record, uid: &str) -> Result<(), CsiError> {
        let driver = self.driver(&record.driver)?;
        let target = self.target(record, uid);
        let request = NodeUnpublishVolume { volume_id: record.handle.clone(), target_path: text(&target) };
        wire::unpublish(&driver.channel, request).await?;
        remove_unmounted(&target)?;
        let needs = |other: &Record| other.is_begun && other.dir != record.dir && other.is_same_volume(record);
        match record.is_persistent && !self.records().iter().any(needs) {
            true => self.unstage(&driver, record).await,
            false => Ok(()),
        }
    }

    async fn unstage(&self, driver: &Driver, record: &Record) -> Result<(), CsiError> {
        let staging = self.staging(record);
        if driver.can(capability::STAGE_UNSTAGE_VOLUME) {
            let request = NodeUnstageVolume { volume_id: record.handle.clone(), staging_target_path: text(&staging) };
            wire::unstage(&driver.channel, request).await?;
        }
        // The directory above is this volume's alone.
        let above = staging.parent().filter(|_| !record.is_block);
        remove_unmounted(&staging)?;
        Ok(above.map_or(Ok(()), remove_unmounted)?)
    }
}

/// Removes a path that a driver has left, unless it is still mounted or not empty.
fn remove_unmounted(path: &Path) -> io::Result<()> {
    if mountinfo::is_mounted(path)? {
        return Err(io::Error::other(format!("{} is still mounted", path.display())));
    }
    let removed = match fs::symlink_metadata(path) {
        Ok(stat) if stat.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// In hexadecimal digits.
pub fn sha256(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    stdx::hex::encode(digest.as_ref())
}
