//! Messages that an expression can build although no object has them: wrappers of scalars, durations and timestamps.

use crate::types::Type;
use crate::value::{EvalError, Timestamp, Value};

const NANOS: i64 = 1_000_000_000;

/// The type of a message, and the types of its fields.
pub(crate) fn find_message(name: &str) -> Option<(Type, &'static [(&'static str, Type)])> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "BoolValue" => (Type::Bool, &[("value", Type::Bool)]),
        "BytesValue" => (Type::Bytes, &[("value", Type::Bytes)]),
        "DoubleValue" | "FloatValue" => (Type::Double, &[("value", Type::Double)]),
        "Int32Value" | "Int64Value" => (Type::Int, &[("value", Type::Int)]),
        "StringValue" => (Type::String, &[("value", Type::String)]),
        "UInt32Value" | "UInt64Value" => (Type::Uint, &[("value", Type::Uint)]),
        "Duration" => (Type::Duration, &[("seconds", Type::Int), ("nanos", Type::Int)]),
        "Timestamp" => (Type::Timestamp, &[("seconds", Type::Int), ("nanos", Type::Int)]),
        _ => return None,
    })
}

/// The value of a message with some of its fields.
pub(crate) fn build_message<'a>(
    name: &str,
    field: impl Fn(&str) -> Option<Value<'a>>,
) -> Option<Result<Value<'a>, EvalError>> {
    let number = |name: &str| match field(name) {
        Some(Value::Int(number)) => number,
        _ => 0,
    };
    let (of, _) = find_message(name)?;
    Some(match of {
        Type::Duration => {
            let nanos = number("seconds").checked_mul(NANOS).and_then(|nanos| nanos.checked_add(number("nanos")));
            nanos.map(Value::Duration).ok_or_else(|| EvalError::failed("duration overflow"))
        }
        Type::Timestamp => {
            let start = Timestamp::new(number("seconds"), 0);
            let time = start.and_then(|start| start.add(i128::from(number("nanos"))));
            time.map(Value::Timestamp).ok_or_else(|| EvalError::failed("timestamp overflow"))
        }
        of => match field("value") {
            // The value has the precision of 32 bits.
            Some(Value::Double(value)) if name.ends_with(".FloatValue") => Ok(Value::Double(f64::from(value as f32))),
            value => Ok(value.unwrap_or_else(|| zero(&of))),
        },
    })
}

fn zero<'a>(of: &Type) -> Value<'a> {
    match of {
        Type::Bool => Value::Bool(false),
        Type::Bytes => Value::Bytes([].into()),
        Type::Double => Value::Double(0.0),
        Type::Uint => Value::Uint(0),
        Type::String => Value::from(""),
        _ => Value::Int(0),
    }
}
