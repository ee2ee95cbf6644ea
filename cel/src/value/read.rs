//! Values of objects, by their schema.

use api::Tree;

use api::quote::go_quote;

use super::{EvalError, List, Map, Text, Timestamp, Value};
use crate::schema::{Format, Schema, SchemaType};

impl<'a> Value<'a> {
    /// The value of a tree. With a schema it has the declared type, and data that contradicts the schema is an error;
    /// without a schema it has the type of its JSON.
    pub fn read(tree: &'a Tree, schema: Option<&'a Schema>) -> Result<Value<'a>, EvalError> {
        match schema {
            Some(schema) => read_typed(tree, schema),
            None => Ok(read_untyped(tree)),
        }
    }

    /// The value of the claims of a token, or of a user: keys are found by their escaped names too (`a__dot__b` is
    /// `a.b`), and all numbers are doubles.
    pub fn read_claims(tree: &'a Tree) -> Value<'a> {
        match tree {
            Tree::Int(value) => Value::Double(*value as f64),
            Tree::List(items) => Value::List(List::Claims(items)),
            Tree::Map(map) => Value::Map(Map::Claims(map)),
            _ => read_untyped(tree),
        }
    }
}

fn read_untyped(tree: &Tree) -> Value<'_> {
    match tree {
        Tree::Null => Value::Null,
        Tree::Bool(value) => Value::Bool(*value),
        Tree::Int(value) => Value::Int(*value),
        Tree::Float(value) => Value::Double(*value),
        Tree::Str(text) => Value::String(Text::Borrowed(text)),
        Tree::List(items) => Value::List(List::Tree(items, None)),
        Tree::Map(map) => Value::Map(Map::Tree(map, None)),
    }
}

fn read_typed<'a>(tree: &'a Tree, schema: &'a Schema) -> Result<Value<'a>, EvalError> {
    if tree.is_null() {
        let message = "invalid data, got null for schema with nullable=false";
        return if schema.nullable { Ok(Value::Null) } else { Err(EvalError::failed(message)) };
    }
    if schema.int_or_string {
        return match tree {
            Tree::Str(text) => Ok(Value::String(Text::Borrowed(text))),
            Tree::Int(value) => Ok(Value::Int(*value)),
            _ => Err(EvalError::failed("invalid data, expected XIntOrString value to be either a string or integer")),
        };
    }
    match (schema.kind, tree) {
        (SchemaType::Object, Tree::Map(map)) => Ok(Value::Map(Map::Tree(map, Some(schema)))),
        (SchemaType::Array, Tree::List(items)) => Ok(Value::List(List::Tree(items, Some(schema)))),
        (SchemaType::String, Tree::Str(text)) => read_string(text, schema.format),
        (SchemaType::Number, Tree::Int(value)) => Ok(Value::Double(*value as f64)),
        (SchemaType::Number, Tree::Float(value)) => Ok(Value::Double(*value)),
        (SchemaType::Integer, Tree::Int(value)) => Ok(Value::Int(*value)),
        (SchemaType::Boolean, Tree::Bool(value)) => Ok(Value::Bool(*value)),
        (SchemaType::None, _) if schema.preserve_unknown_fields => Ok(Value::Preserved(tree)),
        (kind, _) => Err(EvalError::failed(mismatch(kind))),
    }
}

fn mismatch(kind: SchemaType) -> &'static str {
    match kind {
        SchemaType::Object => "invalid data, expected a map for the provided schema with type=object",
        SchemaType::Array => "invalid data, expected an array for the provided schema with type=array",
        SchemaType::String => "invalid data, expected string",
        SchemaType::Number => "invalid data, expected float",
        SchemaType::Integer => "invalid data, expected int",
        SchemaType::Boolean => "invalid data, expected bool",
        SchemaType::None => {
            "invalid type, expected object, array, number, integer, boolean or string, or no type with \
             x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true"
        }
    }
}

fn read_string(text: &str, format: Format) -> Result<Value<'_>, EvalError> {
    let invalid = |what: &str, cause: &str| EvalError::failed(format!("Invalid {what} {text}: {cause}"));
    match format {
        Format::Other => Ok(Value::String(Text::Borrowed(text))),
        Format::Byte => match api::base64::decode_url_padded(text) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(error) => Err(invalid("byte formatted string", &error.to_string())),
        },
        Format::Duration => {
            read_duration(text).map(Value::Duration).ok_or_else(|| invalid("duration", "unable to parse as duration"))
        }
        Format::Date => Timestamp::parse(&format!("{text}T00:00:00Z")).map(Value::Timestamp).ok_or_else(|| {
            invalid("date formatted string", &format!("parsing time {} as \"2006-01-02\"", go_quote(text)))
        }),
        Format::DateTime => read_date_time(text)
            .map(Value::Timestamp)
            .ok_or_else(|| invalid("date-time formatted string", &format!("cannot parse {}", go_quote(text)))),
    }
}

/// The names of units, of which the last one is also a prefix of longer names (`minutes`), and their nanoseconds.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// A duration of Go, or the sum of the numbers with units in the text: `2 days`, `1 hour 5 min`.
fn read_duration(text: &str) -> Option<i64> {
    if let Ok(nanos) = api::time::parse_duration(text) {
        return Some(nanos);
    }
    let (mut rest, mut total) = (text, None);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = &rest[..digits];
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(rest.len());
        if let Some(unit) = find_unit(&rest[..letters].to_lowercase()) {
            let nanos = number.parse::<i64>().ok()?.wrapping_mul(unit);
            total = Some(total.unwrap_or(0i64).wrapping_add(nanos));
        }
        rest = &rest[letters..];
    }
    total
}

fn find_unit(name: &str) -> Option<i64> {
    let is_named = |names: &&[&str]| names.contains(&name) || names.last().is_some_and(|last| name.starts_with(last));
    UNITS.iter().find(|(names, _)| is_named(names)).map(|(_, nanos)| *nanos)
}

/// RFC 3339, also without a zone; no text is the start of the epoch.
fn read_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::new(0, 0);
    }
    Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{text}Z")))
}
