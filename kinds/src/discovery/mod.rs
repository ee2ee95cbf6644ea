//! The kinds of the `discovery` group, a file a kind.

pub mod endpoint_slice;
