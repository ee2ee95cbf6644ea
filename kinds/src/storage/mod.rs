//! The kinds of the `storage` group, one file per kind.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod rules;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;
