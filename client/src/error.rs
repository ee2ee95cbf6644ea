//! Errors of requests.

use std::fmt;

use api::Tree;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A Status from the server.
    Status { code: u16, reason: String, message: String },
    /// No response, or an incomplete one.
    Transport(String),
    /// An invalid response.
    Answer(String),
    /// A local failure.
    Failed(String),
}

impl Error {
    pub fn status(code: u16, status: &Tree) -> Error {
        Error::Status { code, reason: status.str("reason").to_string(), message: status.str("message").to_string() }
    }

    fn is(&self, wanted: &str) -> bool {
        matches!(self, Error::Status { reason, .. } if reason == wanted)
    }

    pub fn is_not_found(&self) -> bool {
        self.is("NotFound")
    }

    pub fn is_already_exists(&self) -> bool {
        self.is("AlreadyExists")
    }

    pub fn is_conflict(&self) -> bool {
        self.is("Conflict")
    }

    pub fn is_invalid(&self) -> bool {
        self.is("Invalid")
    }

    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden")
    }

    /// The resource does not support the patch type.
    pub fn is_unsupported_media_type(&self) -> bool {
        self.code() == Some(415)
    }

    pub fn code(&self) -> Option<u16> {
        if let Error::Status { code, .. } = self { Some(*code) } else { None }
    }

    /// The server's message without its code.
    pub fn message(&self) -> String {
        match self {
            Error::Status { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// The requested resourceVersion is too old.
    pub fn is_expired(&self) -> bool {
        matches!(self, Error::Status { code: 410, .. })
    }

    /// The namespace is being deleted and rejects creates, which is not a failure.
    pub fn is_terminating(&self) -> bool {
        matches!(self, Error::Status { code: 403, message, .. } if message.contains("because it is being terminated"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Status { code, message, .. } => write!(f, "{code}: {message}"),
            Error::Transport(why) => write!(f, "request failed: {why}"),
            Error::Answer(why) => write!(f, "invalid response: {why}"),
            Error::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
