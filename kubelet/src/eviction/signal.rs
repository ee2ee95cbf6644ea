//! The resources that can run out, and the node's conditions for them.

use std::collections::BTreeMap;

/// In upstream's order of names, memory first: it is reclaimed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// `memory.available`.
    Memory,
    /// `allocatableMemory.available`.
    AllocatableMemory,
    /// `nodefs.available`.
    NodeFs,
    /// `nodefs.inodesFree`.
    NodeFsInodes,
    /// `imagefs.available`.
    ImageFs,
    /// `imagefs.inodesFree`.
    ImageFsInodes,
    /// `containerfs.available`.
    ContainerFs,
    /// `containerfs.inodesFree`.
    ContainerFsInodes,
    /// `pid.available`.
    Pid,
}

/// The resource that pods can free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    Storage,
    Inodes,
    Pids,
}

/// The node's condition while a resource runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Memory,
    Disk,
    Pid,
}

const ALL: [(Signal, &str); 9] = [
    (Signal::Memory, "memory.available"),
    (Signal::AllocatableMemory, "allocatableMemory.available"),
    (Signal::NodeFs, "nodefs.available"),
    (Signal::NodeFsInodes, "nodefs.inodesFree"),
    (Signal::ImageFs, "imagefs.available"),
    (Signal::ImageFsInodes, "imagefs.inodesFree"),
    (Signal::ContainerFs, "containerfs.available"),
    (Signal::ContainerFsInodes, "containerfs.inodesFree"),
    (Signal::Pid, "pid.available"),
];

impl Signal {
    pub(crate) fn from_name(name: &str) -> Option<Signal> {
        ALL.iter().find(|(_, other)| *other == name).map(|(signal, _)| *signal)
    }

    pub(crate) fn name(self) -> &'static str {
        ALL.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn resource(self) -> Resource {
        match self {
            Signal::Memory | Signal::AllocatableMemory => Resource::Memory,
            Signal::NodeFs | Signal::ImageFs | Signal::ContainerFs => Resource::Storage,
            Signal::NodeFsInodes | Signal::ImageFsInodes | Signal::ContainerFsInodes => Resource::Inodes,
            Signal::Pid => Resource::Pids,
        }
    }

    pub(crate) fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::Memory,
            Resource::Storage | Resource::Inodes => Condition::Disk,
            Resource::Pids => Condition::Pid,
        }
    }
}

impl Resource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Storage => "ephemeral-storage",
            Resource::Inodes => "inodes",
            Resource::Pids => "pids",
        }
    }
}

/// The capacity of a resource, and how much of it is available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measurement {
    /// The available amount.
    pub available: i64,
    /// The total amount.
    pub capacity: i64,
}

/// The result of one measurement; signals that could not be measured are missing.
pub type Measurements = BTreeMap<Signal, Measurement>;
