//! The kinds of the `storagemigration` group, a file a kind.

pub mod storage_version_migration;
