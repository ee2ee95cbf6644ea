//! What happens to every request before and after its handler, in the order of one list.

pub mod chain;
pub mod cors;
pub(crate) mod impersonation;
pub mod local;
