//! Versions of the CNI specification, and the features of each.

use super::error::{Error, code};

/// A version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    /// All supported versions, the oldest first.
    pub const ALL: [Version; 5] = [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];
    /// The newest supported version.
    pub const NEWEST: Version = Version::V1_1_0;

    /// The version as configurations write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V0_3_0 => "0.3.0",
            Version::V0_3_1 => "0.3.1",
            Version::V0_4_0 => "0.4.0",
            Version::V1_0_0 => "1.0.0",
            Version::V1_1_0 => "1.1.0",
        }
    }

    /// Parses a version; an unsupported one is an error.
    pub fn parse(text: &str) -> Result<Version, Error> {
        let known = Version::ALL.into_iter().find(|version| version.as_str() == text);
        known.ok_or_else(|| {
            let all = Version::ALL.map(Version::as_str).join(", ");
            Error::new(code::INCOMPATIBLE_VERSION, format!("cniVersion: {text:?} is not supported, only {all}"))
        })
    }

    /// Whether CHECK exists, and DEL gets the result of ADD.
    pub fn has_check(self) -> bool {
        self >= Version::V0_4_0
    }

    /// Whether GC and STATUS exist.
    pub fn has_gc(self) -> bool {
        self >= Version::V1_1_0
    }
}
