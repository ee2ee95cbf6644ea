//! The meaning of the wire: the tree, the schema table, JSON, YAML and protobuf, selectors,
//! quantities, errors, the four patches and managed fields. No I/O, no defaults of kinds.

pub mod base64;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
#[cfg(any(test, feature = "testing"))]
pub mod generate;
pub mod json;
pub mod protobuf;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod time;
pub mod tree;
pub mod typed;
pub mod validation;
pub mod yaml;

pub use tree::{Map, Str, Tree};
