//! A container's processes, from fork to exec: everything here runs in a child of the shim.

pub(crate) mod devices;
pub(crate) mod handler;
pub mod init;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod rootfs;
pub(crate) mod sandbox_root;
pub(crate) mod user;
