//! Field errors with upstream's wording and field paths. Paths live on the stack and are only formatted for errors.

pub use crate::quote::go_quote;
use std::fmt::Write;

use crate::float;
use crate::json;
use crate::schema::Type;
use crate::tree::Tree;

/// A path to a field: `Path::root("spec").field("containers").index(0)` is `spec.containers[0]`.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    /// The object itself; prints as empty.
    Nil,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The empty path.
    pub const fn nil() -> Path<'a> {
        Path { parent: None, step: Step::Nil }
    }

    /// A path of one field.
    pub const fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(name) }
    }

    /// A child field; `name` may contain dots.
    pub const fn field<'b>(&'b self, name: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// The path of an item of this list.
    pub const fn index<'b>(&'b self, index: usize) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of a map: `labels[app]`.
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn write(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        // Writing to a String cannot fail.
        let _ = match self.step {
            Step::Nil => Ok(()),
            Step::Field(name) if out.is_empty() => write!(out, "{name}"),
            Step::Field(name) => write!(out, ".{name}"),
            Step::Index(index) => write!(out, "[{index}]"),
            Step::Key(key) => write!(out, "[{key}]"),
        };
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(if out.is_empty() { "<nil>" } else { &out })
    }
}

/// The type of a field error, as upstream names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl Reason {
    /// The reason of a Status cause.
    pub fn name(self) -> &'static str {
        match self {
            Reason::NotFound => "FieldValueNotFound",
            Reason::Required => "FieldValueRequired",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::Internal => "InternalError",
        }
    }
}

/// A validation error of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Why the value is invalid.
    pub reason: Reason,
    /// The path of the field.
    pub field: String,
    /// Without the field: `Invalid value: "x": must be positive`.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// A value in an error: strings quoted like Go's %q, others as JSON.
pub struct Value(String);

impl Value {
    /// A tree in the field order of its type, like upstream's encoding of the struct.
    pub fn typed(tree: &Tree, ty: &'static Type) -> Value {
        Value(String::from_utf8_lossy(&json::encode(tree, Some(ty))).into_owned())
    }

    /// Text that is printed unchanged.
    pub fn raw(text: impl Into<String>) -> Value {
        Value(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value(go_quote(text))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value(go_quote(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value(go_quote(&text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value(number.to_string())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Value {
        Value(number.to_string())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value(value.to_string())
    }
}

impl From<&Tree> for Value {
    fn from(tree: &Tree) -> Value {
        match tree {
            Tree::Str(text) => Value(go_quote(text)),
            Tree::Float(number) => Value(float::format_general(*number)),
            _ => Value(String::from_utf8_lossy(&json::encode(tree, None)).into_owned()),
        }
    }
}

/// More errors are not useful; an object with an error in each of a million items must not cost more.
const MAX_ERRORS: usize = 1000;

/// All errors of an object, in the order of validation.
#[derive(Debug, Default, Clone)]
pub struct Errors {
    list: Vec<FieldError>,
    /// Violations that do not count, because the stored object has them too.
    warnings: Vec<String>,
}

impl Errors {
    /// No errors.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The errors in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.list.iter()
    }

    /// Appends the errors of another list.
    pub fn extend(&mut self, other: Errors) {
        self.list.extend(other.list);
        self.warnings.extend(other.warnings);
    }

    /// Adds a violation that does not count.
    pub fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_ERRORS {
            self.warnings.push(text);
        }
    }

    /// The violations that do not count.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Appends an error.
    pub fn push(&mut self, error: FieldError) {
        if self.list.len() < MAX_ERRORS {
            self.list.push(error);
        }
    }

    /// Reports a missing value.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.add(Reason::Required, path, joined("Required value", detail));
    }

    /// Reports an invalid value.
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.add(Reason::Invalid, path, joined(&format!("Invalid value: {}", value.into().0), detail));
    }

    /// An Invalid error without its value, as upstream reports compound values of rules.
    pub fn invalid_omitted(&mut self, path: &Path<'_>, detail: &str) {
        self.add(Reason::Invalid, path, joined("Invalid value", detail));
    }

    /// A Duplicate error without its value.
    pub fn duplicate_omitted(&mut self, path: &Path<'_>) {
        self.add(Reason::Duplicate, path, "Duplicate value".to_string());
    }

    /// One Invalid error for each message of a validation function.
    pub fn invalid_all(&mut self, path: &Path<'_>, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(path, value, &message);
        }
    }

    /// Reports a value of the wrong type.
    pub fn type_invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.add(Reason::TypeInvalid, path, joined(&format!("Invalid value: {}", value.into().0), detail));
    }

    /// `supported` is printed in the given order; upstream sorts it in most places.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|text| go_quote(text)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        self.add(Reason::NotSupported, path, joined(&format!("Unsupported value: {}", value.into().0), &detail));
    }

    /// Reports a field that must not be set.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.add(Reason::Forbidden, path, joined("Forbidden", detail));
    }

    /// Reports a value that must be unique.
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(Reason::Duplicate, path, format!("Duplicate value: {}", value.into().0));
    }

    /// A duplicate in some fields only; `detail` names them.
    pub fn duplicate_with(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.add(Reason::Duplicate, path, joined(&format!("Duplicate value: {}", value.into().0), detail));
    }

    /// Reports a reference to something that does not exist.
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(Reason::NotFound, path, format!("Not found: {}", value.into().0));
    }

    /// Reports a value with too many bytes.
    pub fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.add(Reason::TooLong, path, format!("Too long: may not be more than {max_bytes} bytes"));
    }

    /// Reports a list with too many items.
    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.add(Reason::TooMany, path, format!("Too many: {actual}: must have at most {max} items"));
    }

    /// Reports a failure that is not the client's.
    pub fn internal(&mut self, path: &Path<'_>, detail: &str) {
        self.add(Reason::Internal, path, joined("Internal error", detail));
    }

    fn add(&mut self, reason: Reason, path: &Path<'_>, message: String) {
        self.push(FieldError { reason, field: path.to_string(), message });
    }
}

fn joined(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_string() } else { format!("{head}: {detail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_match_upstream() {
        let mut errors = Errors::new();
        let spec = Path::root("spec");
        let containers = spec.field("containers");
        errors.required(&containers.index(0).field("name"), "");
        errors.invalid(&spec.field("replicas"), -1, "must be greater than or equal to 0");
        errors.not_supported(&Path::root("metadata").field("labels").key("a"), "x", &["b", "c"]);
        errors.forbidden(&Path::nil(), "no");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.containers[0].name: Required value",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "metadata.labels[a]: Unsupported value: \"x\": supported values: \"b\", \"c\"",
                "<nil>: Forbidden: no",
            ]
        );
    }
}
