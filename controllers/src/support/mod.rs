//! What more than one controller needs.
#![allow(dead_code)]

pub mod batch;
pub mod conditions;
pub mod discovery;
pub mod everything;
pub mod nodes;
pub mod owner;
pub mod pods;
pub mod taints;
