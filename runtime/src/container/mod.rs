//! A container's processes, from fork to exec: everything here runs in a child of the shim.

pub mod devices;
pub mod handler;
pub mod init;
pub mod mounts;
pub mod process;
pub mod rootfs;
pub mod sandbox_root;
pub mod user;
