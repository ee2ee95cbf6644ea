//! Plain values that every other part reads: pods and what the runtime has of them, resources, fields and names. It
//! knows nothing of the rest of the crate and does no I/O.

pub mod cpuset;
pub mod env;
pub mod expand;
pub mod fields;
pub mod last_status;
pub mod pod;
pub mod problem;
pub mod resources;
pub mod state;
pub mod sysctls;
