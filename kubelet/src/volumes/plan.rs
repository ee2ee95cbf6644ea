//! The plan of a volume on this node, as a value. The plan is derived from the pod and the objects that it refers to,
//! and carried out by `execute`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use super::command::Command;
use super::disk::Disk;
use super::files::{self, Files};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    /// A directory of the pod's own, empty at first.
    Directory(Medium),
    /// Files that the kubelet writes and keeps up to date.
    Files {
        files: Files,
        backing: Medium,
        /// When some of them have to be renewed, in seconds since the epoch.
        due: Option<i64>,
    },
    /// A path of the node, as it is.
    Host { path: PathBuf, expected: HostPathType, read_only: bool },
    /// A path of the node, mounted into the pod's directory.
    Bind { source: PathBuf, read_only: bool, options: Vec<String> },
    /// The file system of a block device of the node, created if there is none, and mounted into the pod's directory.
    Disk(Disk),
    /// A block device of the node, which containers get as a device.
    Device { path: PathBuf, read_only: bool },
    /// A mount by a program.
    Run { command: Command, read_only: bool },
    /// The content of an image, which the runtime mounts.
    Image { reference: String, pull_policy: String },
    /// A CSI driver has mounted the volume already.
    Made {
        path: PathBuf,
        read_only: bool,
        /// The kubelet applies the pod's fsGroup.
        give: bool,
        /// The driver has to be called again from time to time.
        repeats: bool,
    },
}

/// The file system of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Medium {
    Disk,
    /// A tmpfs, with at most so many bytes.
    Memory(Option<u64>),
    HugePages {
        page_bytes: u64,
    },
}

/// The required type of a path of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPathType {
    Anything,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

impl Plan {
    /// A hash of the plan, equal for plans with the same result; None if repeating the plan costs nothing.
    pub(crate) fn stamp(&self) -> Option<u64> {
        match self {
            Plan::Files { files, .. } => Some(files::stamp(files)),
            _ => None,
        }
    }
}

/// Why a volume is not there: the step that upstream's events name, and the cause.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) source: Arc<dyn Error + Send + Sync>,
}

/// The step that failed, as upstream's events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The volume's source is not known yet.
    Process,
    WaitForAttach,
    /// The volume is not for this node.
    MountAffinity,
    MapAffinity,
    MountDevice,
    SetUp,
    SetUpDevice,
    MapDevice,
}

impl Step {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Step::MapAffinity | Step::SetUpDevice | Step::MapDevice => "FailedMapVolume",
            _ => "FailedMount",
        }
    }

    pub(crate) fn operation(self) -> &'static str {
        match self {
            Step::Process | Step::SetUp => "MountVolume.SetUp",
            Step::WaitForAttach => "MountVolume.WaitForAttach",
            Step::MountAffinity => "MountVolume.NodeAffinity check",
            Step::MapAffinity => "MapVolume.NodeAffinity check",
            Step::MountDevice => "MountVolume.MountDevice",
            Step::SetUpDevice => "MapVolume.SetUpDevice",
            Step::MapDevice => "MapVolume.MapPodDevice",
        }
    }
}

impl Failure {
    pub(crate) fn at(step: Step, source: impl Error + Send + Sync + 'static) -> Failure {
        Failure { step, source: Arc::new(source) }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(source: E) -> Failure {
        Failure::at(Step::SetUp, source)
    }
}

/// A failed request to the API server, as its message alone.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message())]
pub(crate) struct RequestError(#[source] pub(crate) client::Error);
