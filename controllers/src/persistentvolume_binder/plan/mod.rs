//! Pure decisions of the binder: for claims, for volumes, and the objects to write.

pub(super) mod claim;
pub(super) mod matching;
pub(super) mod volume;
pub(super) mod writes;
