//! The error of a plugin: a code of the specification, a message, and details.

use std::error::Error as _;
use std::fmt;

use serde_json::{Value, json};

use super::version::Version;

/// Error codes of the specification.
pub(crate) mod code {
    pub(crate) const INCOMPATIBLE_VERSION: u32 = 1;
    pub(crate) const UNSUPPORTED_FIELD: u32 = 2;
    pub(crate) const INVALID_ENVIRONMENT: u32 = 4;
    pub(crate) const IO: u32 = 5;
    pub(crate) const DECODE: u32 = 6;
    pub(crate) const INVALID_CONFIGURATION: u32 = 7;
    /// Plugins may define codes from 100 on. Upstream's plugins use this one for all other errors.
    pub(crate) const INTERNAL: u32 = 999;
}

/// An error of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: u32,
    pub message: String,
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), details: String::new() }
    }

    /// An error with [`code::INTERNAL`].
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(code::INTERNAL, message)
    }

    /// An error with [`code::INVALID_CONFIGURATION`].
    pub fn configuration(message: impl Into<String>) -> Error {
        Error::new(code::INVALID_CONFIGURATION, message)
    }

    /// An error with [`code::UNSUPPORTED_FIELD`].
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(code::UNSUPPORTED_FIELD, message)
    }

    /// Prefixes the message with its context.
    pub fn within(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The error as a plugin prints it.
    pub fn to_json(&self, version: Version) -> Value {
        let mut json = json!({ "cniVersion": version.as_str(), "code": self.code, "msg": self.message });
        if !self.details.is_empty() {
            json["details"] = Value::from(self.details.as_str());
        }
        json
    }

    /// Parses the output of a plugin; None if it is not an error.
    pub fn from_json(value: &Value) -> Option<Error> {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
        let code = value["code"].as_u64().and_then(|code| u32::try_from(code).ok())?;
        Some(Error { code, message: text("msg"), details: text("details") })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl std::error::Error for Error {}

/// The chain of causes becomes one message, because the error leaves the process as text.
impl From<crate::netlink::Error> for Error {
    fn from(error: crate::netlink::Error) -> Error {
        match error.source() {
            Some(cause) => Error::internal(format!("{error}: {cause}")),
            None => Error::internal(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::new(code::IO, error.to_string())
    }
}
