//! What more than one controller needs.
#![allow(dead_code)]

pub mod batch;
pub mod conditions;
pub mod owner;
pub mod pods;
