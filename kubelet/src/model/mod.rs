//! Plain values that every other part reads: pods and their state in the runtime, resources, fields and names. The
//! module depends on no other part of the crate and does no I/O.

pub(crate) mod cpuset;
pub(crate) mod env;
pub(crate) mod expand;
pub(crate) mod fields;
pub(crate) mod last_status;
pub mod pod;
pub(crate) mod problem;
pub(crate) mod resources;
pub mod state;
pub(crate) mod sysctls;
