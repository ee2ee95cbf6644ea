//! The filters before and after the handler of every request, in the order of one list.

mod authentication;
mod authorization;
pub(crate) mod chain;
mod compression;
mod deadline;
mod fairness;
mod fence;
mod impersonation;
pub mod local;
