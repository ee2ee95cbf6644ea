//! The kinds of the `node` group, one file per kind.

pub mod runtime_class;
