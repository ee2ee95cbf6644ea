//! What several controllers need.

pub mod pods;
