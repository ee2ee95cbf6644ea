//! Errors of requests.

use std::fmt;
use std::sync::Arc;

use api::Tree;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A Status from the server.
    #[error("{code}: {message}")]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason.
        reason: String,
        /// The text for users.
        message: String,
        /// The reasons of the causes in the details.
        causes: Vec<String>,
        /// The name of the object in the details; empty if the error is not about one object.
        object: String,
    },
    /// No response, or an incomplete one.
    #[error("request failed: {0}")]
    Transport(String),
    /// An invalid response.
    #[error("invalid response: {0}")]
    Answer(String),
    /// A local failure.
    #[error(transparent)]
    Failed(LocalError),
}

/// A failure of the caller itself. Two are equal if their texts are.
#[derive(Debug, Clone)]
pub struct LocalError(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LocalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl PartialEq for LocalError {
    fn eq(&self, other: &LocalError) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for LocalError {}

impl Error {
    /// A local failure: an error, or the text of one.
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Failed(LocalError(Arc::from(cause.into())))
    }

    /// The error for a Status object with which the server responded.
    pub fn status(code: u16, status: &Tree) -> Error {
        let causes = status.list("details.causes").iter().map(|cause| cause.str("reason").to_string());
        Error::Status {
            code,
            reason: status.str("reason").to_string(),
            message: status.str("message").to_string(),
            causes: causes.collect(),
            object: status.str("details.name").to_string(),
        }
    }

    fn is(&self, wanted: &str) -> bool {
        matches!(self, Error::Status { reason, .. } if reason == wanted)
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound")
    }

    /// Whether nothing is served at the path: a 404 that names no object.
    pub fn is_path_not_found(&self) -> bool {
        matches!(self, Error::Status { code: 404, object, .. } if object.is_empty())
    }

    /// Whether an object with this name exists.
    pub fn is_already_exists(&self) -> bool {
        self.is("AlreadyExists")
    }

    /// Whether the object was changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.is("Conflict")
    }

    /// Whether validation rejected the object.
    pub fn is_invalid(&self) -> bool {
        self.is("Invalid")
    }

    /// Whether authorization or admission rejected the request.
    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden")
    }

    /// The resource does not support the patch type.
    pub fn is_unsupported_media_type(&self) -> bool {
        self.code() == Some(415)
    }

    /// The HTTP status code, if the server responded.
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
        matches!(self, Error::Status { code: 403, causes, .. } if causes.iter().any(|one| one == "NamespaceTerminating"))
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn recognizes_a_terminating_namespace_by_its_cause() {
        let status = |causes: Tree| {
            let details = tree! { "causes" => causes };
            tree! { "reason" => "Forbidden", "message" => "no", "details" => details }
        };
        let cause = tree! { "reason" => "NamespaceTerminating", "field" => "metadata.namespace" };
        let error = Error::status(403, &status(list![cause]));
        assert!(error.is_terminating() && error.is_forbidden());
        assert_eq!(error.to_string(), "403: no");
        assert!(!Error::status(403, &status(list![])).is_terminating());
    }

    #[test]
    fn local_failures_keep_their_text_and_source() {
        let error = Error::failed("no range is left");
        assert_eq!(error.to_string(), "no range is left");
        assert_eq!(error, Error::failed("no range is left".to_string()));
        let cause = std::io::Error::other(Error::Transport("refused".to_string()));
        assert_eq!(Error::failed(cause).to_string(), "request failed: refused");
    }
}
