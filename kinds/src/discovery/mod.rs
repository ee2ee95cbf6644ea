//! The kinds of the `discovery` group, one file per kind.

pub mod endpoint_slice;
