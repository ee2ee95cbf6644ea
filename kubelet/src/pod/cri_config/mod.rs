//! CRI configurations of sandboxes and containers, from pods. Pure.

pub(crate) mod container;
pub(crate) mod dns;
pub(crate) mod env;
mod env_file;
pub(crate) mod hostname;
pub(crate) mod memory;
pub(crate) mod resources;
pub(crate) mod sandbox;
mod security;
#[cfg(test)]
mod tests;
