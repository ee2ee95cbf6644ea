//! What the runtime is asked for: sandboxes and containers as CRI describes them, made from pods. Pure.

pub mod container;
pub mod dns;
pub mod env;
mod env_file;
pub mod hostname;
pub mod memory;
pub mod resources;
pub mod sandbox;
mod security;
#[cfg(test)]
mod tests;
