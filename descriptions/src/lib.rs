//! k8s-openapi's types behind non-generic functions: what they cost to compile is paid here, once. It
//! knows nothing else of the project.

#![warn(unreachable_pub)]

mod descriptions;
mod row;
#[cfg(feature = "descriptions")]
mod upstream;

pub use descriptions::{Descriptions, descriptions};
