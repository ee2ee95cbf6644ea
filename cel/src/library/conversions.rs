//! Conversions between types.

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Opaque, Text, Timestamp, Value};

pub(super) const ROWS: &[Row] = &[
    ("type", "type", "(A) -> type<A>"),
    ("dyn", "to_dyn", "(A) -> dyn"),
    ("bool", "bool_to_bool", "(bool) -> bool"),
    ("bool", "string_to_bool", "(string) -> bool"),
    ("bytes", "bytes_to_bytes", "(bytes) -> bytes"),
    ("bytes", "string_to_bytes", "(string) -> bytes"),
    ("double", "double_to_double", "(double) -> double"),
    ("double", "int64_to_double", "(int) -> double"),
    ("double", "string_to_double", "(string) -> double"),
    ("double", "uint64_to_double", "(uint) -> double"),
    ("duration", "duration_to_duration", "(duration) -> duration"),
    ("duration", "string_to_duration", "(string) -> duration"),
    ("int", "int64_to_int64", "(int) -> int"),
    ("int", "double_to_int64", "(double) -> int"),
    ("int", "duration_to_int64", "(duration) -> int"),
    ("int", "string_to_int64", "(string) -> int"),
    ("int", "timestamp_to_int64", "(timestamp) -> int"),
    ("int", "uint64_to_int64", "(uint) -> int"),
    ("string", "string_to_string", "(string) -> string"),
    ("string", "bool_to_string", "(bool) -> string"),
    ("string", "bytes_to_string", "(bytes) -> string"),
    ("string", "double_to_string", "(double) -> string"),
    ("string", "duration_to_string", "(duration) -> string"),
    ("string", "int64_to_string", "(int) -> string"),
    ("string", "timestamp_to_string", "(timestamp) -> string"),
    ("string", "uint64_to_string", "(uint) -> string"),
    ("timestamp", "timestamp_to_timestamp", "(timestamp) -> timestamp"),
    ("timestamp", "int64_to_timestamp", "(int) -> timestamp"),
    ("timestamp", "string_to_timestamp", "(string) -> timestamp"),
    ("uint", "uint64_to_uint64", "(uint) -> uint"),
    ("uint", "double_to_uint64", "(double) -> uint"),
    ("uint", "int64_to_uint64", "(int) -> uint"),
    ("uint", "string_to_uint64", "(string) -> uint"),
];

/// Whether the result of a constant argument is a constant.
pub(crate) fn is_conversion(name: &str) -> bool {
    matches!(name, "bool" | "bytes" | "double" | "dyn" | "duration" | "int" | "string" | "timestamp" | "type" | "uint")
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "type" => |_, args| Ok(Value::Type(args[0].type_of())),
        "dyn" => |_, args| Ok(args[0].clone()),
        "bool" => |_, args| to_bool(&args[0]),
        "bytes" => |_, args| to_bytes(&args[0]),
        "double" => |_, args| to_double(&args[0]),
        "duration" => |_, args| to_duration(&args[0]),
        "int" => |_, args| to_int(&args[0]),
        "string" => |_, args| to_string(&args[0]),
        "timestamp" => |_, args| to_timestamp(&args[0]),
        "uint" => |_, args| to_uint(&args[0]),
        _ => return None,
    })
}

/// The error of text that is no value of a type.
fn invalid<'a>(to: &str) -> Result<Value<'a>, EvalError> {
    Err(EvalError::failed(format!("type conversion error from 'string' to '{to}'")))
}

fn to_bool<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => invalid("bool"),
        },
        _ => no_overload(),
    }
}

fn to_bytes<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Bytes(_) => Ok(value.clone()),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_overload(),
    }
}

fn to_double<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => parse_double(text).map_or_else(|| invalid("double"), |value| Ok(Value::Double(value))),
        _ => no_overload(),
    }
}

/// As Go parses: numbers that are too large are none, and underscores are only allowed in literals.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value: f64 = text.parse().ok()?;
    let is_named = unsigned.starts_with(|c: char| c.is_ascii_alphabetic());
    (value.is_finite() || is_named).then_some(value)
}

fn to_int<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let overflow = || EvalError::failed("integer overflow");
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        Value::Double(value) => {
            // As doubles, the limits are equal to numbers that do not fit.
            let fits = *value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_807.0;
            if fits { Ok(Value::Int(*value as i64)) } else { Err(overflow()) }
        }
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(time) => Ok(Value::Int(time.seconds)),
        Value::String(text) => text.parse().map_or_else(|_| invalid("int"), |value| Ok(Value::Int(value))),
        _ => no_overload(),
    }
}

fn to_uint<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let overflow = || EvalError::failed("unsigned integer overflow");
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(value) => {
            let fits = *value >= 0.0 && *value < 18_446_744_073_709_551_615.0;
            if fits { Ok(Value::Uint(*value as u64)) } else { Err(overflow()) }
        }
        Value::String(text) if !text.starts_with('+') => {
            text.parse().map_or_else(|_| invalid("uint"), |value| Ok(Value::Uint(value)))
        }
        Value::String(_) => invalid("uint"),
        _ => no_overload(),
    }
}

fn to_duration<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::String(text) => match api::time::parse_duration(text) {
            Ok(nanos) => Ok(Value::Duration(nanos)),
            Err(_) => invalid("google.protobuf.Duration"),
        },
        _ => no_overload(),
    }
}

fn to_timestamp<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => {
            Timestamp::new(*seconds, 0).map(Value::Timestamp).ok_or_else(|| EvalError::failed("timestamp overflow"))
        }
        Value::String(text) => match Timestamp::parse(text) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => invalid("google.protobuf.Timestamp"),
        },
        _ => no_overload(),
    }
}

/// The text of a value, if it has one.
pub(crate) fn to_string<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    Ok(match value {
        Value::String(text) => Value::String(text.clone()),
        Value::Bool(value) => Value::String(Text::Borrowed(if *value { "true" } else { "false" })),
        Value::Int(value) => Value::string(value.to_string()),
        Value::Uint(value) => Value::string(value.to_string()),
        Value::Double(value) => Value::string(api::float::format_general(*value)),
        Value::Duration(nanos) => Value::string(format_duration(*nanos)),
        Value::Timestamp(time) => Value::string(time.to_string()),
        Value::Type(of) => Value::string(of.name()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::string(text),
            Err(_) => return Err(EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Opaque(Opaque::Ip(address)) => Value::string(address.to_string()),
        Value::Opaque(Opaque::Cidr(cidr)) => Value::string(cidr.to_string()),
        _ => return no_overload(),
    })
}

/// Seconds with as many digits as a double has.
fn format_duration(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_fractions_of_seconds() {
        for (nanos, text) in [(0, "0s"), (1_500_000_000, "1.5s"), (-60_000_000_000, "-60s"), (1, "0.000000001s")] {
            let value = to_string(&Value::Duration(nanos)).expect("a string");
            assert_eq!(value.as_str(), Some(text));
        }
    }
}
