//! The kinds of the `node` group, a file a kind.

pub mod runtime_class;
