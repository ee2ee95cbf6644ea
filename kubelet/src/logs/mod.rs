//! Logs of containers on disk: opening them through no symbolic link, and rotating them.

pub mod files;
pub mod rotation;
