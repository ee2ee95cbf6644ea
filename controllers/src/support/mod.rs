//! What more than one controller needs.
#![allow(dead_code)]

pub mod batch;
pub mod clock;
pub mod conditions;
pub mod kinds;
pub mod owner;
pub mod pods;
pub mod selecting;
