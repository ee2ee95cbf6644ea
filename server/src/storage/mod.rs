//! Objects as they are stored: the watch cache in front of the store, encryption at rest, fencing, compaction.

pub mod cache;
pub mod compaction;
pub mod encryption;
pub mod fence;
pub mod resource;
