//! The Status object: every error response, with upstream's code, reason and message.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::field::{Errors, FieldError};
use crate::tree;
use crate::tree::Tree;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: Cow<'static, str>,
    /// The text for people.
    pub message: String,
    /// None omits `details`.
    pub details: Option<Details>,
    /// For an expired page: the token to continue with an inconsistent list.
    pub continue_token: Option<String>,
}

/// The object that a Status is about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// The object's API group.
    pub group: String,
    /// The kind for Invalid, otherwise the resource.
    pub kind: String,
    /// The object's uid.
    pub uid: String,
    /// The individual errors.
    pub causes: Vec<Cause>,
    /// When the client may retry; 0 if it is not limited.
    pub retry_after_seconds: u32,
}

/// One of the errors of a Status.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The type of the error.
    pub reason: String,
    /// The text for people.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// `deployments.apps`, or `pods` for the core group.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") }
}

impl Status {
    /// A failure with any code and reason.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Status {
        Status { code, reason: reason.into(), message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Status {
        self.details = Some(Details {
            name: name.to_string(),
            group: group.to_string(),
            kind: kind.to_string(),
            ..Details::default()
        });
        self
    }

    /// 404 NotFound.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Status {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Status::new(404, "NotFound", message).about(group, resource, name)
    }

    /// 409 AlreadyExists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Status {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Status::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409 Conflict.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, resource));
        Status::new(409, "Conflict", message).about(group, resource, name)
    }

    /// 403 Forbidden.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl std::fmt::Display) -> Status {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(group, resource))
        } else {
            format!("{} {name:?} is forbidden: {why}", qualified(group, resource))
        };
        Status::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 400 BadRequest.
    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(400, "BadRequest", message)
    }

    /// 401 Unauthorized.
    pub fn unauthorized() -> Status {
        Status::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405 MethodNotAllowed.
    pub fn method_not_allowed() -> Status {
        let mut status =
            Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        status.details = Some(Details::default());
        status
    }

    /// The path does not exist.
    pub fn no_resource() -> Status {
        let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Details::default());
        status
    }

    /// 410 Expired.
    pub fn gone(message: impl Into<String>) -> Status {
        Status::new(410, "Expired", message)
    }

    /// 500 InternalError.
    pub fn internal(message: impl std::fmt::Display) -> Status {
        let mut status = Status::new(500, "InternalError", format!("Internal error occurred: {message}"));
        let cause = Cause { reason: String::new(), message: message.to_string(), field: String::new() };
        status.details = Some(Details { causes: vec![cause], ..Details::default() });
        status
    }

    /// 429 TooManyRequests.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        let mut status = Status::new(429, "TooManyRequests", message);
        status.details = Some(Details { retry_after_seconds, ..Details::default() });
        status
    }

    /// 504 Timeout.
    pub fn timeout(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        let mut status = Status::new(504, "Timeout", format!("Timeout: {}", message.into()));
        status.details = Some(Details { retry_after_seconds, ..Details::default() });
        status
    }

    /// 503 ServiceUnavailable.
    pub fn service_unavailable(message: impl Into<String>) -> Status {
        Status::new(503, "ServiceUnavailable", message)
    }

    /// 415 UnsupportedMediaType.
    pub fn unsupported_media_type(message: impl Into<String>) -> Status {
        Status::new(415, "UnsupportedMediaType", message)
    }

    /// 406 NotAcceptable.
    pub fn not_acceptable(message: impl Into<String>) -> Status {
        Status::new(406, "NotAcceptable", message)
    }

    /// 413 RequestEntityTooLarge.
    pub fn too_large(message: impl Into<String>) -> Status {
        Status::new(413, "RequestEntityTooLarge", message)
    }

    /// An invalid object, with a cause for each field error.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> Status {
        // Duplicate errors are reported once.
        let mut seen = HashSet::new();
        let errors: Vec<&FieldError> = errors.iter().filter(|error| seen.insert(error.to_string())).collect();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {all}", qualified(group, kind));
        let mut status = Status::new(422, "Invalid", message).about(group, kind, name);
        if let Some(details) = &mut status.details {
            details.causes = errors.into_iter().map(Cause::from).collect();
        }
        status
    }

    /// A Status written by another server.
    pub fn from_tree(tree: &Tree) -> Status {
        let code = tree.int("code").and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        let mut status = Status::new(code, tree.str("reason").to_string(), tree.str("message"));
        status.details = tree.has("details").then(|| Details::from_tree(tree.at("details")));
        status
    }

    /// The Status as an object.
    pub fn to_tree(&self) -> Tree {
        let mut tree = tree! {
            "kind" => "Status",
            "apiVersion" => "v1",
            "metadata" => tree! {},
            "status" => "Failure",
            "message" => &self.message,
            "code" => i64::from(self.code),
        };
        if !self.reason.is_empty() {
            tree.set("reason", &*self.reason);
        }
        if let Some(token) = &self.continue_token {
            tree.child("metadata").set("continue", token);
        }
        if let Some(details) = &self.details {
            tree.set("details", details.to_tree());
        }
        tree
    }
}

impl Details {
    fn from_tree(tree: &Tree) -> Details {
        let text = |tree: &Tree, key: &str| tree.str(key).to_string();
        let cause = |cause: &Tree| Cause {
            reason: text(cause, "reason"),
            message: text(cause, "message"),
            field: text(cause, "field"),
        };
        Details {
            name: text(tree, "name"),
            group: text(tree, "group"),
            kind: text(tree, "kind"),
            uid: text(tree, "uid"),
            causes: tree.list("causes").iter().map(cause).collect(),
            retry_after_seconds: tree.int("retryAfterSeconds").and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
        }
    }

    fn to_tree(&self) -> Tree {
        let mut tree = tree! {};
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !value.is_empty() {
                tree.set(key, value);
            }
        }
        if !self.causes.is_empty() {
            tree.set("causes", self.causes.iter().map(Cause::to_tree).collect::<Vec<_>>());
        }
        if self.retry_after_seconds > 0 {
            tree.set("retryAfterSeconds", i64::from(self.retry_after_seconds));
        }
        tree
    }
}

impl Cause {
    fn to_tree(&self) -> Tree {
        let mut tree = tree! {};
        for (key, value) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !value.is_empty() {
                tree.set(key, value);
            }
        }
        tree
    }
}

impl From<&crate::field::FieldError> for Cause {
    fn from(error: &crate::field::FieldError) -> Cause {
        Cause { reason: error.reason.name().to_string(), message: error.message.clone(), field: error.field.clone() }
    }
}

/// The Status of a completed deletion.
pub fn deleted(group: &str, resource: &str, name: &str, uid: &str) -> Tree {
    let details = Details {
        name: name.into(),
        group: group.into(),
        kind: resource.into(),
        uid: uid.into(),
        ..Details::default()
    };
    tree! {
        "kind" => "Status", "apiVersion" => "v1", "metadata" => tree! {}, "status" => "Success",
        "details" => details.to_tree(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;

    #[test]
    fn duplicate_errors_are_reported_once() {
        let mut errors = Errors::new();
        for _ in 0..2 {
            errors.required(&Path::root("a"), "");
        }
        let status = Status::invalid("", "Pod", "p", &errors);
        assert_eq!(status.message, "Pod \"p\" is invalid: a: Required value");
        assert_eq!(status.details.map(|details| details.causes.len()), Some(1));
    }

    #[test]
    fn invalid_objects_list_all_causes() {
        let mut errors = Errors::new();
        errors.required(&Path::root("spec"), "");
        errors.required(&Path::root("data"), "x");
        let status = Status::invalid("apps", "Deployment", "web", &errors);
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: [spec: Required value, data: Required value: x]"
        );
        assert_eq!(status.to_tree().list("details.causes").len(), 2);
    }
}
