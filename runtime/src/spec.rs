//! The specs of sandboxes and containers, as plain values. The CRI service computes them, and the shim applies them.
//!
//! A spec is complete: the shim makes no decisions, and looks up nothing but user names in the image.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A pod's sandbox: its namespaces, and the pause process that holds them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SandboxSpec {
    pub id: String,
    /// None with the host's network, whose hostname is used then.
    pub hostname: Option<String>,
    pub network: bool,
    pub ipc: bool,
    pub pid: bool,
    pub sysctls: BTreeMap<String, String>,
    /// Set only if the machine allows it.
    pub default_sysctls: BTreeMap<String, String>,
    pub shm_bytes: u64,
    pub oom_score_adj: Option<i32>,
    pub cgroup: String,
    pub userns: Option<IdMaps>,
}

/// The mapping from IDs of a user namespace to IDs of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdMaps {
    pub uids: Vec<IdMap>,
    pub gids: Vec<IdMap>,
}

/// A range of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdMap {
    pub container: u32,
    pub host: u32,
    pub length: u32,
}

/// A container: its root file system, its limits and its init process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerSpec {
    pub id: String,
    pub process: ProcessSpec,
    pub root: RootSpec,
    pub mounts: Vec<MountSpec>,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub devices: Vec<DeviceSpec>,
    pub device_rules: Vec<DeviceRule>,
    pub pid: PidMode,
    /// Whether the sandbox has these namespaces, so that the container joins them.
    pub network: bool,
    pub ipc: bool,
    pub cgroup: CgroupSpec,
    pub cgroup_namespace: bool,
    pub userns: Option<IdMaps>,
    pub tty: bool,
    pub stdin: bool,
    pub stdin_once: bool,
    pub log_path: Option<PathBuf>,
    /// The OCI runtime binary; None for the built-in runtime.
    pub handler: Option<PathBuf>,
}

/// The PID namespace of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PidMode {
    #[default]
    Container,
    Pod,
    Node,
    /// That of another container of the pod, by its ID. The shim looks up the pid, because a pid that was looked up before
    /// the start could belong to another process by then.
    Target(String),
}

/// A process: the container's init process, or an exec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessSpec {
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub user: UserSpec,
    pub capabilities: Capabilities,
    pub no_new_privs: bool,
    /// The compiled seccomp program on disk; None for an unconfined process.
    pub seccomp: Option<PathBuf>,
    pub apparmor: Option<String>,
    pub selinux: Option<String>,
    pub rlimits: Vec<Rlimit>,
    pub oom_score_adj: Option<i32>,
    pub terminal: bool,
}

/// The user of a process. Names are looked up in the image's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserSpec {
    /// `user`, `uid`, `user:group` and so on, as in an image's configuration; empty means root.
    pub name: String,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    /// Whether the groups of the image's /etc/group are added (the policy Merge).
    pub image_groups: bool,
}

/// Capability sets as bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capabilities {
    pub bounding: u64,
    pub permitted: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

/// A resource limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rlimit {
    pub name: String,
    pub soft: u64,
    pub hard: u64,
}

/// The root file system: the directories of an overlay, top layer first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootSpec {
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
    pub readonly: bool,
}

/// A mount in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MountSpec {
    pub target: String,
    pub source: Source,
    pub readonly: bool,
    /// Read-only including all submounts; fails if that is impossible.
    pub recursive_readonly: bool,
    pub options: MountOptions,
    pub propagation: Propagation,
    pub idmap: Option<IdMaps>,
}

/// The source of a mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Source {
    Bind(PathBuf),
    /// The files of an image, top layer first, and a path below them.
    Image {
        lower: Vec<PathBuf>,
        sub_path: String,
    },
    /// A new file system of a type of the kernel, such as proc or tmpfs.
    Kernel {
        kind: String,
        options: Vec<(String, String)>,
    },
    /// The sandbox's shared memory.
    Shm,
    /// The container's own cgroup.
    Cgroup,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountOptions {
    pub nosuid: bool,
    pub nodev: bool,
    pub noexec: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceSpec {
    pub path: String,
    /// `c`, `b` or `p`.
    pub kind: String,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A rule of the device cgroup; a later rule overrides an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRule {
    pub allow: bool,
    /// `a`, `c` or `b`.
    pub kind: String,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Some of `rwm`.
    pub access: String,
}

/// A container's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CgroupSpec {
    /// The path below the root of each hierarchy, with a leading slash.
    pub path: String,
    pub resources: cgroup::Resources,
}
