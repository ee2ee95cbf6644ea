//! The kinds of the `node` group, one file per kind.

pub(crate) mod runtime_class;
