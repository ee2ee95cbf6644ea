//! The kinds of the `coordination` group, one file per kind.

pub(crate) mod lease;
