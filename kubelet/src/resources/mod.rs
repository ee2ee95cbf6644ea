//! What pods may use of their node and what they do use: cgroups, exclusive CPUs, memory and devices, resizes, disks.

pub mod cgroups;
pub mod disk;
pub mod machine;
pub mod managers;
mod psi;
pub mod resize;
pub mod usage;
