//! What more than one controller needs.
#![allow(dead_code)]

pub mod batch;
pub mod conditions;
pub mod finalizers;
pub mod note;
pub mod own;
pub mod owner;
pub mod pods;
pub mod serving;
pub mod slices;
pub mod volumes;
