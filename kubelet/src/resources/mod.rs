//! Limits and usage of pods: cgroups, exclusive CPUs, memory and devices, resizes, disks.

pub(crate) mod cgroups;
pub(crate) mod disk;
pub(crate) mod machine;
pub mod managers;
mod psi;
pub(crate) mod resize;
pub(crate) mod usage;
