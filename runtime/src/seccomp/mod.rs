//! Seccomp: a profile in the form users know, or the runtime's own, compiled to the kernel's filter.

mod compile;
mod default;
mod numbers;
mod profile;

pub use compile::compile;
pub use default::default_profile;
pub use profile::{Action, Argument, Comparison, Profile, Rule, parse};
