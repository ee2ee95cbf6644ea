//! The kinds of the `storagemigration` group, one file per kind.

pub mod storage_version_migration;
