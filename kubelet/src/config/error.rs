//! Errors of the configuration, in the words that users see.

use std::fmt;

use crate::model::{cpuset, sysctls};

/// An invalid value, and where it is below its field: `[2]`, `["memory"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    path: String,
    message: String,
}

impl InvalidValue {
    /// A message in words that follow the field's name.
    pub(super) fn new(message: impl Into<String>) -> InvalidValue {
        InvalidValue { path: String::new(), message: message.into() }
    }

    /// An item of a list or a map.
    pub(super) fn within(self, item: &str) -> InvalidValue {
        let path = if self.path.is_empty() { item.to_string() } else { format!("{item}: {}", self.path) };
        InvalidValue { path, ..self }
    }

    /// Puts the field's path in front.
    pub(super) fn at(self, parent: &str) -> InvalidValue {
        InvalidValue { path: format!("{parent}{}", self.path), ..self }
    }

    /// Adds a field's path if the error has none.
    pub(super) fn or_at(self, path: &str) -> InvalidValue {
        if self.path.is_empty() { self.at(path) } else { self }
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => formatter.write_str(&self.message),
            path => write!(formatter, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for InvalidValue {}

impl From<cpuset::ParseError> for InvalidValue {
    fn from(error: cpuset::ParseError) -> InvalidValue {
        InvalidValue::new(error.to_string())
    }
}

impl From<sysctls::PatternError> for InvalidValue {
    fn from(error: sysctls::PatternError) -> InvalidValue {
        InvalidValue::new(error.to_string())
    }
}
