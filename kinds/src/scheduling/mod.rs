//! The kinds of the `scheduling` group, one file per kind.

pub(crate) mod priority_class;
