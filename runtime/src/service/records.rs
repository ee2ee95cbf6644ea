//! Records that survive a restart of the runtime: one file per sandbox and per container, in the pod's directory.

use std::fs;
use std::path::Path;

use cri::{ContainerConfig, PodSandboxConfig};
use prost::Message;
use stdx::fs::ReplaceOptions;

use crate::error::{Context, Result};

pub(super) const RECORD: &str = "record";

/// The stage of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Stage {
    /// Not confirmed to the client yet: the next start of the runtime undoes it.
    Creating = 0,
    Ready = 1,
    Stopped = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxRecord {
    #[prost(string, tag = 1)]
    pub id: String,
    #[prost(message, optional, tag = 2)]
    pub config: Option<PodSandboxConfig>,
    #[prost(int64, tag = 3)]
    pub created_at: i64,
    #[prost(string, tag = 4)]
    pub handler: String,
    #[prost(string, repeated, tag = 5)]
    pub ips: Vec<String>,
    #[prost(enumeration = "Stage", tag = 6)]
    pub stage: i32,
    #[prost(int32, tag = 7)]
    pub pause: i32,
    /// Whether the pod has addresses to release.
    #[prost(bool, tag = 8)]
    pub networked: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerRecord {
    #[prost(string, tag = 1)]
    pub id: String,
    #[prost(string, tag = 2)]
    pub sandbox: String,
    #[prost(message, optional, tag = 3)]
    pub config: Option<ContainerConfig>,
    #[prost(int64, tag = 4)]
    pub created_at: i64,
    #[prost(string, tag = 5)]
    pub image_id: String,
    #[prost(string, tag = 6)]
    pub image_ref: String,
    #[prost(int32, tag = 7)]
    pub stop_signal: i32,
    #[prost(string, tag = 8)]
    pub cgroup: String,
    /// Why it failed to start; empty if it did not.
    #[prost(string, tag = 9)]
    pub failure: String,
    #[prost(int64, tag = 10)]
    pub failed_at: i64,
    /// Set before its process is created: if there is no exit record, it ran, or may have run.
    #[prost(bool, tag = 11)]
    pub started: bool,
    /// Snapshots of images that are mounted as volumes.
    #[prost(string, repeated, tag = 12)]
    pub views: Vec<String>,
    /// Its removal has begun and has to be completed.
    #[prost(bool, tag = 13)]
    pub removing: bool,
}

impl SandboxRecord {
    pub(crate) fn config(&self) -> PodSandboxConfig {
        self.config.clone().unwrap_or_default()
    }
}

/// Replaces a file atomically. A reboot ends every pod, so the file is not synced.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = ReplaceOptions::PRIVATE.write(path, bytes);
    written.context(|| format!("writing {}", path.display()))
}

pub(super) fn write(directory: &Path, record: &impl Message) -> Result<()> {
    replace(&directory.join(RECORD), &record.encode_to_vec())
}

/// None if the directory has no complete record: its creation was never confirmed to the client.
pub(super) fn read<M: Message + Default>(directory: &Path) -> Option<M> {
    let bytes = fs::read(directory.join(RECORD)).ok()?;
    M::decode(bytes.as_slice()).ok()
}
