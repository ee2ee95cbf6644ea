//! Errors of commands, and how they are printed: the texts and exit codes that scripts rely on.

use api::status::Status;

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A text, printed after `error: `.
    #[error("{0}")]
    Message(String),
    /// A text that is printed as it is.
    #[error("{0}")]
    Plain(String),
    /// A Status from the server, and what the request was for.
    #[error("{context}{status}")]
    Server { status: Box<Status>, context: String },
    /// The resource type is not served.
    #[error("the server doesn't have a resource type {0:?}")]
    NoResource(String),
    /// No connection to the server.
    #[error("{reason}")]
    Connect { host: String, reason: String, is_refused: bool },
    /// A response did not end within `--request-timeout`.
    #[error("net/http: request canceled (Client.Timeout exceeded while reading body)")]
    ReadTimeout,
    /// Several errors, in the order in which they occurred.
    #[error("{}", join(.0))]
    Many(Vec<Error>),
    /// Everything is said; only the exit code is left.
    #[error("exit status {0}")]
    Exit(u8),
    /// A command that ran elsewhere ended with this code.
    #[error("{message}")]
    Command { message: String, code: u8 },
    /// A local file or stream.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

fn join(errors: &[Error]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) }
}

/// An error with a text.
pub(crate) fn message<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Message(text.into()))
}

impl Error {
    /// An error with a text.
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error::Message(text.into())
    }

    /// The Status of the server's response.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Error::Server { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether the object, or the path, does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Whether the object was changed by another client in between.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "Conflict")
    }

    /// Adds what the request was for to a response of the server; other errors get it as a prefix.
    pub(crate) fn with_context(self, text: &str) -> Error {
        match self {
            Error::Server { status, context } => Error::Server { status, context: format!("{text}: {context}") },
            Error::Message(message) => Error::Message(format!("{text}: {message}")),
            other => other,
        }
    }

    /// A response of the server as a plain text, where upstream wraps it.
    pub(crate) fn without_reason(self) -> Error {
        match self {
            Error::Server { status, context } => Error::Message(format!("{context}{}", status.message)),
            other => other,
        }
    }

    /// All errors as one; none is no error.
    pub(crate) fn all(mut errors: Vec<Error>) -> Result<()> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Error::Many(errors)),
        }
    }

    /// The text for the standard error stream, with its last line feed, and the exit code.
    pub(crate) fn report(&self) -> (String, u8) {
        let text = match self {
            Error::Exit(code) => return (String::new(), *code),
            Error::Command { message, code } => return (ended(message), *code),
            Error::Server { status, .. } if status.reason == "Invalid" => invalid(status),
            Error::Many(errors) if errors.len() == 1 => return errors[0].report(),
            Error::Many(errors) => errors.iter().map(|error| ended(&error.line())).collect(),
            Error::Message(text) if text.starts_with("error: ") => text.clone(),
            Error::NoResource(_) | Error::ReadTimeout => format!("error: {self}"),
            Error::Message(text) => format!("error: {text}"),
            Error::Io(error) => format!("error: {}", io_text(error)),
            _ => self.line(),
        };
        let mut text = ended(&text);
        if let Some(hint) = self.hint() {
            text.push_str(&ended(&hint));
        }
        (text, 1)
    }

    /// One line without a prefix, unless it is a known kind of error.
    fn line(&self) -> String {
        match self {
            Error::Server { status, context } => match &*status.reason {
                "Unauthorized" => format!("error: You must be logged in to the server ({context}{})", status.message),
                "" => format!("Error from server: {context}{}", status.message),
                reason => format!("Error from server ({reason}): {context}{}", status.message),
            },
            Error::Connect { host, is_refused: true, .. } => {
                format!("The connection to the server {host} was refused - did you specify the right host or port?")
            }
            Error::Connect { reason, .. } => format!("Unable to connect to the server: {reason}"),
            Error::Io(error) => io_text(error),
            other => other.to_string(),
        }
    }

    /// What the user can do about it, beyond the text that upstream has.
    fn hint(&self) -> Option<String> {
        match self {
            Error::Connect { is_refused: true, .. } => {
                Some("hint: `tiphys up` starts a cluster on this machine".to_string())
            }
            Error::Server { status, .. } if status.code == 403 => forbidden_hint(&status.message),
            _ => None,
        }
    }
}

/// `User "u" cannot list resource "pods" in API group "" in the namespace "n"` as the role that would allow it.
fn forbidden_hint(message: &str) -> Option<String> {
    let (user, rest) = message.split_once("User \"")?.1.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once("\" in API group \"")?;
    let (group, place) = rest.split_once('"')?;
    let resource = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let (kind, bind) = match place.split_once("in the namespace \"") {
        Some((_, namespace)) => {
            let namespace = namespace.split('"').next().unwrap_or_default();
            ("role", format!("rolebinding NAME --role=NAME --user={user} -n {namespace}"))
        }
        None => ("clusterrole", format!("clusterrolebinding NAME --clusterrole=NAME --user={user}")),
    };
    Some(format!(
        "hint: allowed by `kubectl create {kind} NAME --verb={verb} --resource={resource}` and `kubectl create {bind}`"
    ))
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_string() } else { format!("{text}\n") }
}

fn invalid(status: &Status) -> String {
    let Some(details) = &status.details else { return format!("The request is invalid: {}", status.message) };
    let mut text = "The request is invalid".to_string();
    if !details.kind.is_empty() || !details.name.is_empty() {
        text = format!("The {} {:?} is invalid", details.kind, details.name);
    } else if details.causes.is_empty() {
        text = format!("{text}: {}", status.message);
    }
    let mut causes: Vec<String> = Vec::new();
    for cause in &details.causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !causes.contains(&line) {
            causes.push(line);
        }
    }
    match causes.as_slice() {
        [] => text,
        // A line feed of its own, besides the one that a cause may end with.
        [one] => format!("{text}: {one}\n"),
        many => format!("{text}: \n{}", many.iter().map(|line| format!("* {line}\n")).collect::<String>()),
    }
}

/// An error of the operating system in Go's words.
pub(crate) fn io_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_string(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_string(),
        std::io::ErrorKind::NotADirectory => "not a directory".to_string(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_string(),
        std::io::ErrorKind::AddrInUse => "address already in use".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_upstreams_texts() {
        let check = |error: Error, want: &str| assert_eq!(error.report(), (want.to_string(), 1));
        let server = |status: Status| Error::Server { status: Box::new(status), context: String::new() };
        check(Error::new("no"), "error: no\n");
        check(Error::new("error: no"), "error: no\n");
        check(server(Status::not_found("", "pods", "a")), "Error from server (NotFound): pods \"a\" not found\n");
        check(server(Status::unauthorized()), "error: You must be logged in to the server (Unauthorized)\n");
        check(
            server(Status::not_found("", "pods", "a")).with_context("error when deleting"),
            "Error from server (NotFound): error when deleting: pods \"a\" not found\n",
        );
        check(
            Error::Many(vec![server(Status::not_found("", "pods", "a")), Error::new("b")]),
            "Error from server (NotFound): pods \"a\" not found\nb\n",
        );
        check(Error::NoResource("x".into()), "error: the server doesn't have a resource type \"x\"\n");
    }

    #[test]
    fn forbidden_names_the_role() {
        let message =
            "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"n\"";
        let hint = forbidden_hint(message).expect("a hint");
        assert!(hint.contains("create role NAME --verb=list --resource=pods"), "{hint}");
        assert!(hint.contains("--user=eve -n n"), "{hint}");
        assert_eq!(forbidden_hint("no"), None);
    }
}
