//! The kinds of the `coordination` group, a file a kind.

pub mod lease;
