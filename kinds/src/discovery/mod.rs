//! The kinds of the `discovery` group, one file per kind.

pub(crate) mod endpoint_slice;
