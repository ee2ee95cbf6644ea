//! The data model of the API: the tree, the schema table, JSON, YAML and protobuf, selectors, quantities, errors, the
//! four patches and managed fields. No I/O, no defaults of kinds.

#![warn(unreachable_pub)]

pub mod apply;
pub mod base64;
pub mod field;
pub mod float;
pub mod formats;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
#[cfg(any(test, feature = "testing"))]
pub mod generate;
pub mod json;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod query;
pub mod quote;
pub mod schema;
pub mod selector;
pub mod status;
pub mod time;
pub mod tree;
pub mod typed;
pub mod validation;
pub mod version;
pub mod yaml;

pub use tree::{Map, Str, Tree};
