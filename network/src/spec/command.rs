//! The commands of the specification, and the attachment that each is about.

use serde_json::Value;

use super::error::Error;
use super::version::Version;

/// A command, the value of `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 5] = [Verb::Add, Verb::Del, Verb::Check, Verb::Gc, Verb::Status];

    /// The value of `CNI_COMMAND`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Check => "CHECK",
            Verb::Gc => "GC",
            Verb::Status => "STATUS",
        }
    }
}

/// The attachment that a command is about. It is empty for GC and STATUS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'a> {
    pub container_id: &'a str,
    /// The path of the network namespace; empty if it no longer exists.
    pub netns: &'a str,
    pub ifname: &'a str,
    /// `KEY=value;…`
    pub args: &'a str,
}

/// The version that a plugin's configuration is in.
pub(crate) fn version_of(conf: &Value) -> Result<Version, Error> {
    Version::parse(conf["cniVersion"].as_str().unwrap_or_default())
}
