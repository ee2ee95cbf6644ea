//! What several controllers need.

pub mod clock;
pub mod pods;
