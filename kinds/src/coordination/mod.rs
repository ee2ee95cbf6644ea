//! The kinds of the `coordination` group, one file per kind.

pub mod lease;
