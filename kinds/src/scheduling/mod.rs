//! The kinds of the `scheduling` group, a file a kind.

pub mod priority_class;
