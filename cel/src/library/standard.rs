//! The functions of every environment of CEL: operators, sizes, strings, and times.

use super::{Call, Function, no_overload};
use crate::library::signature::Row;
use crate::syntax::operators as op;
use crate::value::{EvalError, Timestamp, Value, compare, equal};

const NANOS: i64 = 1_000_000_000;
/// The hours or minutes of an offset, which keep times in range.
const MAX_OFFSET: std::ops::Range<i64> = -1_000_000..1_000_000;

pub(super) const ROWS: &[Row] = &[
    (op::CONDITIONAL, "conditional", "(bool, A, A) -> A"),
    (op::AND, "logical_and", "(bool, bool) -> bool"),
    (op::OR, "logical_or", "(bool, bool) -> bool"),
    (op::NOT, "logical_not", "(bool) -> bool"),
    (op::NOT_STRICTLY_FALSE, "not_strictly_false", "(bool) -> bool"),
    (op::EQUALS, "equals", "(A, A) -> bool"),
    (op::NOT_EQUALS, "not_equals", "(A, A) -> bool"),
    (op::ADD, "add_bytes", "(bytes, bytes) -> bytes"),
    (op::ADD, "add_double", "(double, double) -> double"),
    (op::ADD, "add_duration_duration", "(duration, duration) -> duration"),
    (op::ADD, "add_duration_timestamp", "(duration, timestamp) -> timestamp"),
    (op::ADD, "add_timestamp_duration", "(timestamp, duration) -> timestamp"),
    (op::ADD, "add_int64", "(int, int) -> int"),
    (op::ADD, "add_list", "(list<A>, list<A>) -> list<A>"),
    (op::ADD, "add_string", "(string, string) -> string"),
    (op::ADD, "add_uint64", "(uint, uint) -> uint"),
    (op::DIVIDE, "divide_double", "(double, double) -> double"),
    (op::DIVIDE, "divide_int64", "(int, int) -> int"),
    (op::DIVIDE, "divide_uint64", "(uint, uint) -> uint"),
    (op::MODULO, "modulo_int64", "(int, int) -> int"),
    (op::MODULO, "modulo_uint64", "(uint, uint) -> uint"),
    (op::MULTIPLY, "multiply_double", "(double, double) -> double"),
    (op::MULTIPLY, "multiply_int64", "(int, int) -> int"),
    (op::MULTIPLY, "multiply_uint64", "(uint, uint) -> uint"),
    (op::NEGATE, "negate_double", "(double) -> double"),
    (op::NEGATE, "negate_int64", "(int) -> int"),
    (op::SUBTRACT, "subtract_double", "(double, double) -> double"),
    (op::SUBTRACT, "subtract_duration_duration", "(duration, duration) -> duration"),
    (op::SUBTRACT, "subtract_int64", "(int, int) -> int"),
    (op::SUBTRACT, "subtract_timestamp_duration", "(timestamp, duration) -> timestamp"),
    (op::SUBTRACT, "subtract_timestamp_timestamp", "(timestamp, timestamp) -> duration"),
    (op::SUBTRACT, "subtract_uint64", "(uint, uint) -> uint"),
    (op::INDEX, "index_list", "(list<A>, int) -> A"),
    (op::INDEX, "index_map", "(map<A, B>, A) -> B"),
    (op::IN, "in_list", "(A, list<A>) -> bool"),
    (op::IN, "in_map", "(A, map<A, B>) -> bool"),
    ("size", "size_bytes", "(bytes) -> int"),
    ("size", "bytes_size", "bytes.() -> int"),
    ("size", "size_list", "(list<A>) -> int"),
    ("size", "list_size", "list<A>.() -> int"),
    ("size", "size_map", "(map<A, B>) -> int"),
    ("size", "map_size", "map<A, B>.() -> int"),
    ("size", "size_string", "(string) -> int"),
    ("size", "string_size", "string.() -> int"),
    ("contains", "contains_string", "string.(string) -> bool"),
    ("endsWith", "ends_with_string", "string.(string) -> bool"),
    ("startsWith", "starts_with_string", "string.(string) -> bool"),
    ("matches", "matches", "(string, string) -> bool"),
    ("matches", "matches_string", "string.(string) -> bool"),
    ("getFullYear", "timestamp_to_year", "timestamp.() -> int"),
    ("getFullYear", "timestamp_to_year_with_tz", "timestamp.(string) -> int"),
    ("getMonth", "timestamp_to_month", "timestamp.() -> int"),
    ("getMonth", "timestamp_to_month_with_tz", "timestamp.(string) -> int"),
    ("getDayOfYear", "timestamp_to_day_of_year", "timestamp.() -> int"),
    ("getDayOfYear", "timestamp_to_day_of_year_with_tz", "timestamp.(string) -> int"),
    ("getDayOfMonth", "timestamp_to_day_of_month", "timestamp.() -> int"),
    ("getDayOfMonth", "timestamp_to_day_of_month_with_tz", "timestamp.(string) -> int"),
    ("getDate", "timestamp_to_day_of_month_1_based", "timestamp.() -> int"),
    ("getDate", "timestamp_to_day_of_month_1_based_with_tz", "timestamp.(string) -> int"),
    ("getDayOfWeek", "timestamp_to_day_of_week", "timestamp.() -> int"),
    ("getDayOfWeek", "timestamp_to_day_of_week_with_tz", "timestamp.(string) -> int"),
    ("getHours", "timestamp_to_hours", "timestamp.() -> int"),
    ("getHours", "timestamp_to_hours_with_tz", "timestamp.(string) -> int"),
    ("getHours", "duration_to_hours", "duration.() -> int"),
    ("getMinutes", "timestamp_to_minutes", "timestamp.() -> int"),
    ("getMinutes", "timestamp_to_minutes_with_tz", "timestamp.(string) -> int"),
    ("getMinutes", "duration_to_minutes", "duration.() -> int"),
    ("getSeconds", "timestamp_to_seconds", "timestamp.() -> int"),
    ("getSeconds", "timestamp_to_seconds_tz", "timestamp.(string) -> int"),
    ("getSeconds", "duration_to_seconds", "duration.() -> int"),
    ("getMilliseconds", "timestamp_to_milliseconds", "timestamp.() -> int"),
    ("getMilliseconds", "timestamp_to_milliseconds_with_tz", "timestamp.(string) -> int"),
    ("getMilliseconds", "duration_to_milliseconds", "duration.() -> int"),
];

/// The ordered types; each pair of number types is ordered too.
const ORDERED: [(&str, &str, &str); 14] = [
    ("bool", "bool", "bool"),
    ("int64", "int", "int"),
    ("int64_double", "int", "double"),
    ("int64_uint64", "int", "uint"),
    ("uint64", "uint", "uint"),
    ("uint64_double", "uint", "double"),
    ("uint64_int64", "uint", "int"),
    ("double", "double", "double"),
    ("double_int64", "double", "int"),
    ("double_uint64", "double", "uint"),
    ("string", "string", "string"),
    ("bytes", "bytes", "bytes"),
    ("timestamp", "timestamp", "timestamp"),
    ("duration", "duration", "duration"),
];

/// The rows of `<`, `<=`, `>` and `>=`. They live as long as the program.
pub(super) fn comparison_rows() -> Vec<Row> {
    let operators = [
        (op::LESS, "less"),
        (op::LESS_EQUALS, "less_equals"),
        (op::GREATER, "greater"),
        (op::GREATER_EQUALS, "greater_equals"),
    ];
    let mut rows = Vec::new();
    for (operator, prefix) in operators {
        for (suffix, left, right) in ORDERED {
            let id: &'static str = Box::leak(format!("{prefix}_{suffix}").into_boxed_str());
            let signature: &'static str = Box::leak(format!("({left}, {right}) -> bool").into_boxed_str());
            rows.push((operator, id, signature));
        }
    }
    rows
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        op::NOT => |_, args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => no_overload(),
        },
        op::ADD => |_, args| add(&args[0], &args[1]),
        op::SUBTRACT => |_, args| subtract(&args[0], &args[1]),
        op::MULTIPLY => |_, args| multiply(&args[0], &args[1]),
        op::DIVIDE => |_, args| divide(&args[0], &args[1]),
        op::MODULO => |_, args| modulo(&args[0], &args[1]),
        op::NEGATE => |_, args| negate(&args[0]),
        op::LESS => |_, args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_lt())),
        op::LESS_EQUALS => |_, args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_le())),
        op::GREATER => |_, args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_gt())),
        op::GREATER_EQUALS => |_, args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_ge())),
        op::IN => |call, args| contains(call, &args[1], &args[0]).map(Value::Bool),
        "size" => |_, args| size(&args[0]),
        "contains" => {
            |_, args| strings(args, |text, part| memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
        }
        "endsWith" => |_, args| strings(args, |text, part| text.ends_with(part)),
        "startsWith" => |_, args| strings(args, |text, part| text.starts_with(part)),
        _ => return find_time(name),
    })
}

fn strings<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => no_overload(),
    }
}

fn size<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => no_overload(),
    }
}

/// Whether a list has an item, or a map a key.
pub(super) fn contains<'a>(call: &Call<'_>, container: &Value<'a>, item: &Value<'a>) -> Result<bool, EvalError> {
    match container {
        Value::List(list) => {
            for element in list.iter() {
                match equal(&element?, item, call.tracker) {
                    Ok(true) => return Ok(true),
                    Err(error) if error.is_cancelled() => return Err(error),
                    _ => {}
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(map.find(item)?.is_some()),
        _ => Err(EvalError::overload()),
    }
}

fn overflow(message: &str) -> EvalError {
    EvalError::failed(message)
}

fn int<'a>(value: Option<i64>) -> Result<Value<'a>, EvalError> {
    value.map(Value::Int).ok_or_else(|| overflow("integer overflow"))
}

fn uint<'a>(value: Option<u64>) -> Result<Value<'a>, EvalError> {
    value.map(Value::Uint).ok_or_else(|| overflow("unsigned integer overflow"))
}

fn duration<'a>(value: Option<i64>) -> Result<Value<'a>, EvalError> {
    value.map(Value::Duration).ok_or_else(|| overflow("integer overflow"))
}

fn timestamp<'a>(value: Option<Timestamp>) -> Result<Value<'a>, EvalError> {
    value.map(Value::Timestamp).ok_or_else(|| overflow("timestamp overflow"))
}

fn add<'a>(a: &Value<'a>, b: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            super::check_length(a.len() + b.len()).map(|()| Value::string(format!("{}{}", &**a, &**b)))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            super::check_length(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => a.concat(b).map(Value::List),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Duration(nanos), Value::Timestamp(time)) | (Value::Timestamp(time), Value::Duration(nanos)) => {
            timestamp(time.add(i128::from(*nanos)))
        }
        _ => no_overload(),
    }
}

fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(time), Value::Duration(nanos)) => timestamp(time.add(-i128::from(*nanos))),
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let nanos = i64::try_from(a.nanoseconds() - b.nanoseconds()).ok();
            nanos.map(Value::Duration).ok_or_else(|| overflow("duration overflow"))
        }
        _ => no_overload(),
    }
}

fn multiply<'a>(a: &Value<'a>, b: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => no_overload(),
    }
}

fn divide<'a>(a: &Value<'a>, b: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(overflow("division by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => no_overload(),
    }
}

fn modulo<'a>(a: &Value<'a>, b: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(overflow("modulus by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        _ => no_overload(),
    }
}

fn negate<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match value {
        Value::Int(value) => int(value.checked_neg()),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(nanos) => duration(nanos.checked_neg()),
        _ => no_overload(),
    }
}

/// The parts of times.
fn find_time(name: &str) -> Option<Function> {
    Some(match name {
        "getFullYear" => |call, args| part(call, args, |time, offset| time.civil(offset).year),
        "getMonth" => |call, args| part(call, args, |time, offset| time.civil(offset).month - 1),
        "getDayOfYear" => |call, args| part(call, args, |time, offset| time.civil(offset).day_of_year),
        "getDayOfMonth" => |call, args| part(call, args, |time, offset| time.civil(offset).day - 1),
        "getDate" => |call, args| part(call, args, |time, offset| time.civil(offset).day),
        "getDayOfWeek" => |call, args| part(call, args, |time, offset| time.civil(offset).weekday),
        "getHours" => |call, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS / 3600)),
            _ => part(call, args, |time, offset| time.civil(offset).second_of_day / 3600),
        },
        "getMinutes" => |call, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS / 60)),
            _ => part(call, args, |time, offset| time.civil(offset).second_of_day / 60 % 60),
        },
        "getSeconds" => |call, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS)),
            _ => part(call, args, |time, offset| time.civil(offset).second_of_day % 60),
        },
        "getMilliseconds" => |call, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / 1_000_000)),
            _ => part(call, args, |time, _| i64::from(time.nanos / 1_000_000)),
        },
        _ => return None,
    })
}

fn part<'a>(call: &Call<'_>, args: &[Value<'a>], read: fn(Timestamp, i64) -> i64) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(read(*time, 0))),
        [Value::Timestamp(time), Value::String(zone)] => {
            let offset = find_offset(call, zone, time.seconds)?;
            Ok(Value::Int(read(*time, offset)))
        }
        _ => no_overload(),
    }
}

/// The offset of a zone, by name or as `+05:30`.
fn find_offset(call: &Call<'_>, zone: &str, seconds: i64) -> Result<i64, EvalError> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        let unknown = || EvalError::failed(format!("unknown time zone {zone}"));
        return match zone {
            "" | "UTC" => Ok(0),
            _ => call.zones.and_then(|zones| zones.offset(zone, seconds)).ok_or_else(unknown),
        };
    };
    let number = |text: &str| {
        let invalid = || {
            let quoted = api::quote::go_quote(text);
            EvalError::failed(format!("strconv.Atoi: parsing {quoted}: invalid syntax"))
        };
        text.parse::<i64>().ok().filter(|number| MAX_OFFSET.contains(number)).ok_or_else(invalid)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    Ok((hours * 60 + minutes) * 60)
}
