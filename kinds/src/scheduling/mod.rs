//! The kinds of the `scheduling` group, one file per kind.

pub mod priority_class;
