//! Paths in the sandbox's own small root file system, from which the mount namespaces of its containers start.

/// The pod's `/dev/shm`.
pub(crate) const SHM: &str = "/shm";
/// The mount point of a container's root file system before the pivot.
pub(crate) const ROOT: &str = "/root";
/// Device nodes that containers bind-mount where they cannot create their own.
pub(crate) const DEVICES: &str = "/devices";
