//! Logs of containers on disk: opening them through no symbolic link, and rotating them.

pub(crate) mod files;
pub(crate) mod rotation;
