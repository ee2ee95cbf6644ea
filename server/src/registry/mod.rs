//! The verbs and the one write path of all resources: admission, validation, allocation, subresources.

pub mod admission;
pub mod alloc;
pub mod announce;
pub(crate) mod hooks;
pub(crate) mod initializers;
pub(crate) mod options;
pub(crate) mod respond;
pub(crate) mod shape;
pub(crate) mod subresources;
pub mod usage;
pub(crate) mod verbs;
pub(crate) mod versions;
pub(crate) mod websocket;
pub(crate) mod write;
