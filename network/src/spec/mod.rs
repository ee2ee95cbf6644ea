//! The CNI specification as types: commands, results and errors in all supported versions.
//!
//! Nothing here does I/O, or depends on the caller of a plugin or the set of plugins.

pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod names;
pub(crate) mod reader;
pub(crate) mod result;
pub(crate) mod version;
