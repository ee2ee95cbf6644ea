//! What a sandbox and a container shall be, as plain values: computed by the agent, carried out by the shim.
//!
//! It is complete: whoever carries it out decides nothing and looks nothing up but users' names in the image.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A pod's sandbox: its namespaces and the process that holds them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: String,
    /// Absent for the host's network, whose hostname is the pod's too.
    pub hostname: Option<String>,
    pub network: bool,
    pub ipc: bool,
    pub pid: bool,
    pub sysctls: BTreeMap<String, String>,
    /// Set where the machine allows it.
    pub default_sysctls: BTreeMap<String, String>,
    pub shm_bytes: u64,
    pub oom_score_adj: Option<i32>,
    pub cgroup: String,
    pub userns: Option<IdMaps>,
}

/// Which ids of the host a user namespace's ids are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    pub uids: Vec<IdMap>,
    pub gids: Vec<IdMap>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    pub container: u32,
    pub host: u32,
    pub length: u32,
}

/// A container: its file system, its limits and its first process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub id: String,
    pub process: ProcessSpec,
    pub root: RootSpec,
    pub mounts: Vec<MountSpec>,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub devices: Vec<DeviceSpec>,
    pub device_rules: Vec<DeviceRule>,
    pub pid: PidMode,
    /// Whether the pod's sandbox made these, so that they are joined.
    pub network: bool,
    pub ipc: bool,
    pub cgroup: CgroupSpec,
    pub cgroup_namespace: bool,
    pub userns: Option<IdMaps>,
    pub tty: bool,
    pub stdin: bool,
    pub stdin_once: bool,
    pub log_path: Option<PathBuf>,
    /// The OCI runtime's program, if not this one's own hands.
    pub handler: Option<PathBuf>,
}

/// Whose processes a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidMode {
    #[default]
    Container,
    Pod,
    Node,
    /// Those of another container of the pod, by its id. Its shim knows the pid: a number that was looked up before the
    /// start could be another process's by then.
    Target(String),
}

/// A process: the container's first, or one that is executed beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub user: UserSpec,
    pub capabilities: Capabilities,
    pub no_new_privs: bool,
    /// A compiled program on disk; absent for an unconfined process.
    pub seccomp: Option<PathBuf>,
    pub apparmor: Option<String>,
    pub selinux: Option<String>,
    pub rlimits: Vec<Rlimit>,
    pub oom_score_adj: Option<i32>,
    pub terminal: bool,
}

/// Who runs it. Names are looked up in the image's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpec {
    /// `user`, `uid`, `user:group`, ... as an image's configuration has it; empty is root.
    pub name: String,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    /// Whether the image's /etc/group adds to the groups (the policy Merge).
    pub image_groups: bool,
}

/// Capability sets by bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub bounding: u64,
    pub permitted: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    pub name: String,
    pub soft: u64,
    pub hard: u64,
}

/// The root file system: an overlay's directories, nearest layer first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSpec {
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
    pub readonly: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountSpec {
    pub target: String,
    pub source: Source,
    pub readonly: bool,
    /// Read-only with everything mounted below it, or an error.
    pub recursive_readonly: bool,
    pub options: MountOptions,
    pub propagation: Propagation,
    pub idmap: Option<IdMaps>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    Bind(PathBuf),
    /// Files of an image, nearest layer first, and a path below them.
    Image {
        lower: Vec<PathBuf>,
        sub_path: String,
    },
    /// A file system of the kernel's with its options.
    Kernel {
        kind: String,
        options: Vec<(String, String)>,
    },
    /// The sandbox's shared memory.
    Shm,
    /// The container's own cgroups.
    Cgroup,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOptions {
    pub nosuid: bool,
    pub nodev: bool,
    pub noexec: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    pub path: String,
    /// `c`, `b` or `p`.
    pub kind: String,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// One line of the device list; a later line overrules an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    pub allow: bool,
    /// `a`, `c` or `b`.
    pub kind: String,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Some of `rwm`.
    pub access: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    /// Below every hierarchy's root; starts with a slash.
    pub path: String,
    pub resources: cgroup::Resources,
}
