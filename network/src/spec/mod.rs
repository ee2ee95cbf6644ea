//! The CNI specification as types: commands, results and errors in all supported versions.
//!
//! Nothing here does I/O, or knows who calls a plugin and which plugins there are.

pub mod command;
pub mod error;
pub mod names;
pub mod reader;
pub mod result;
pub mod version;
