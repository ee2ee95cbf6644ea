//! The kinds of the `storagemigration` group, one file per kind.

pub(crate) mod storage_version_migration;
