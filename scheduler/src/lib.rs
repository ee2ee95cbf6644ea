//! The scheduler.

pub mod reference;
