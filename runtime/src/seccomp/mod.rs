//! Seccomp: a profile file of the user, or the default profile, compiled into the kernel's filter.

mod compile;
mod default;
mod numbers;
mod profile;

pub use compile::compile;
pub use default::default_profile;
pub use profile::{Action, Argument, Comparison, Profile, Rule, parse};
