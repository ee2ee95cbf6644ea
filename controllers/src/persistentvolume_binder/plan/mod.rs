//! Pure decisions of the binder: for claims, for volumes, and the objects to write.

pub mod claim;
pub mod matching;
pub mod volume;
pub mod writes;
