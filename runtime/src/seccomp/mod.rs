//! Seccomp: a profile file of the user, or the default profile, compiled into the kernel's filter.

mod compile;
mod default;
mod numbers;
mod profile;

pub(crate) use compile::compile;
pub(crate) use default::default_profile;
pub(crate) use profile::parse;
