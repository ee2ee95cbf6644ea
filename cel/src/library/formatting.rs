//! `format`: the clauses of a format string, and values as they write them. The same walk over the clauses checks the
//! types of literal arguments when an expression is compiled.

use super::{Call, check_length, conversions};
use crate::types::Type;
use crate::value::{EvalError, List, Map, Value};

/// The default number of digits after the point.
const DEFAULT_PRECISION: usize = 6;
/// Doubles have no more digits than these after the point; the rest are zeros.
const MAX_DIGITS: usize = 1100;

/// A clause: the text after the percent sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

/// The errors of a format string or an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("index {0} out of range")]
    Index(usize),
    #[error("unexpected end of string")]
    End,
    #[error("could not parse formatting clause: {0}")]
    Clause(ClauseError),
    #[error("error during formatting: {0}")]
    Argument(ArgumentError),
    /// A value has no text, or an item of it has none.
    #[error("error during formatting: {0}")]
    Value(EvalError),
    #[error("{0}")]
    Cancelled(EvalError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClauseError {
    #[error("unrecognized formatting clause \"{0}\"")]
    Unknown(char),
    #[error("error while parsing precision: could not find end of precision specifier")]
    PrecisionEnd,
    #[error(
        "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {0}: invalid syntax"
    )]
    Precision(String),
}

/// An argument of a type that a clause does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentError {
    clause: Clause,
    type_name: String,
}

impl std::fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.clause {
            Clause::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Clause::Decimal => "decimal clause can only be used on integers",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
            Clause::Scientific => "scientific clause can only be used on doubles",
            Clause::Binary => "only integers and bools can be formatted as binary",
            Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Clause::Octal => "octal clause can only be used on integers",
        };
        write!(f, "{text}, was given {}", self.type_name)
    }
}

impl Clause {
    /// Whether an argument of a type can be formatted. A dyn argument is looked at when it has a value.
    pub(crate) fn accepts(self, of: &Type) -> bool {
        let is_integer = matches!(of, Type::Int | Type::Uint);
        match self {
            _ if of.is_dyn() => true,
            Clause::String => matches!(
                of,
                Type::List(_)
                    | Type::Map(_)
                    | Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::Bool
                    | Type::String
                    | Type::Timestamp
                    | Type::Bytes
                    | Type::Duration
                    | Type::Type(_)
                    | Type::Null
            ),
            Clause::Decimal | Clause::Octal => is_integer,
            Clause::Fixed(_) | Clause::Scientific => matches!(of, Type::Double | Type::String),
            Clause::Binary => is_integer || *of == Type::Bool,
            Clause::Hex { .. } => is_integer || matches!(of, Type::String | Type::Bytes),
        }
    }

    pub(crate) fn refuse(self, of: &Type) -> FormatError {
        FormatError::Argument(ArgumentError { clause: self, type_name: of.name().to_owned() })
    }
}

/// Walks over the clauses of a format string: `apply` writes the argument with an index.
pub(crate) fn walk(
    format: &str,
    arguments: usize,
    mut apply: impl FnMut(usize, Clause) -> Result<String, FormatError>,
) -> Result<(String, usize), FormatError> {
    let (mut out, mut rest, mut index) = (String::new(), format, 0);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if index >= arguments {
            return Err(FormatError::Index(index));
        }
        if rest.is_empty() {
            return Err(FormatError::End);
        }
        let (clause, length) = read_clause(rest).map_err(FormatError::Clause)?;
        out.push_str(&apply(index, clause)?);
        check_length(out.len()).map_err(FormatError::Value)?;
        rest = &rest[length..];
        index += 1;
    }
    out.push_str(rest);
    Ok((out, index))
}

fn read_clause(text: &str) -> Result<(Clause, usize), ClauseError> {
    let (precision, start) = match text.strip_prefix('.') {
        None => (DEFAULT_PRECISION, 0),
        Some(rest) => {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(ClauseError::PrecisionEnd)?;
            let precision =
                rest[..digits].parse().map_err(|_| ClauseError::Precision(api::quote::go_quote(&rest[..digits])))?;
            (precision, digits + 1)
        }
    };
    let Some(letter) = text[start..].chars().next() else { return Err(ClauseError::PrecisionEnd) };
    let clause = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific,
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        other => return Err(ClauseError::Unknown(other)),
    };
    Ok((clause, start + letter.len_utf8()))
}

/// The format string with its arguments.
pub(super) fn format(call: &Call<'_>, text: &str, arguments: &List<'_>) -> Result<String, EvalError> {
    let result = walk(text, arguments.len(), |index, clause| {
        let argument = arguments.get(index).ok_or(FormatError::Index(index))?.map_err(FormatError::Value)?;
        format_argument(call, clause, &argument)
    });
    match result {
        Ok((text, _)) => Ok(text),
        Err(FormatError::Cancelled(error)) => Err(error),
        Err(error) => Err(EvalError::failed(error.to_string())),
    }
}

fn format_argument(call: &Call<'_>, clause: Clause, value: &Value<'_>) -> Result<String, FormatError> {
    let refuse = || Err(clause.refuse(&value.type_of()));
    match (clause, value) {
        (Clause::String, _) => match format_value(call, value, false) {
            Err(error) if error.is_cancelled() => Err(FormatError::Cancelled(error)),
            Err(EvalError::NoSuchOverload(_)) => refuse(),
            Err(error) => Err(FormatError::Value(error)),
            Ok(text) => Ok(text),
        },
        (Clause::Decimal, Value::Int(value)) => Ok(value.to_string()),
        (Clause::Decimal, Value::Uint(value)) => Ok(value.to_string()),
        (Clause::Fixed(_) | Clause::Scientific, _) => match as_double(value) {
            Some(double) => format_double(clause, double),
            None => refuse(),
        },
        (Clause::Binary, Value::Int(value)) => Ok(signed(*value, |magnitude| format!("{magnitude:b}"))),
        (Clause::Binary, Value::Uint(value)) => Ok(format!("{value:b}")),
        (Clause::Binary, Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        (Clause::Octal, Value::Int(value)) => Ok(signed(*value, |magnitude| format!("{magnitude:o}"))),
        (Clause::Octal, Value::Uint(value)) => Ok(format!("{value:o}")),
        (Clause::Hex { upper }, _) => match format_hex(value) {
            Some(hex) if upper => Ok(hex.to_uppercase()),
            Some(hex) => Ok(hex),
            None => refuse(),
        },
        _ => refuse(),
    }
}

fn signed(value: i64, format: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", format(value.unsigned_abs()))
}

fn format_hex(value: &Value<'_>) -> Option<String> {
    let hex = stdx::hex::encode;
    Some(match value {
        Value::Int(value) => signed(*value, |magnitude| format!("{magnitude:x}")),
        Value::Uint(value) => format!("{value:x}"),
        Value::String(text) => hex(text.as_bytes()),
        Value::Bytes(bytes) => hex(bytes),
        _ => return None,
    })
}

fn as_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn format_double(clause: Clause, value: f64) -> Result<String, FormatError> {
    if value.is_nan() {
        return Ok("NaN".to_owned());
    }
    if value.is_infinite() {
        return Ok(if value > 0.0 { "∞" } else { "-∞" }.to_owned());
    }
    let Clause::Fixed(precision) = clause else { return Ok(format_scientific(value)) };
    check_length(precision).map_err(FormatError::Value)?;
    let text = format!("{:.*}", precision.min(MAX_DIGITS), value);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let zeros = "0".repeat(precision.saturating_sub(MAX_DIGITS));
    let point = if precision > 0 { "." } else { "" };
    Ok(format!("{}{point}{fraction}{zeros}", group_digits(whole)))
}

/// Digits in groups of three.
fn group_digits(whole: &str) -> String {
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Six digits and a power of ten, which is how English text has it. A precision is not applied.
fn format_scientific(value: f64) -> String {
    let text = format!("{value:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { "⁻" } else { "" };
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let power: String = format!("{:02}", exponent.abs())
        .bytes()
        .map(|digit| digits.get(usize::from(digit - b'0')).copied().unwrap_or('⁰'))
        .collect();
    format!("{mantissa}×10{sign}{power}")
}

/// The text of a value; inside of lists and maps it is a literal.
fn format_value(call: &Call<'_>, value: &Value<'_>, nested: bool) -> Result<String, EvalError> {
    call.tracker.step(1)?;
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::List(list) => format_list(call, list),
        Value::Map(map) => format_map(call, map),
        Value::Double(double) if nested => Ok(format_nested_double(*double)),
        _ => {
            let text = match conversions::to_string(value) {
                Ok(Value::String(text)) if !matches!(value, Value::Opaque(_)) => text.to_string(),
                Ok(_) | Err(EvalError::NoSuchOverload(_)) => return Err(no_format(value, nested)),
                Err(error) => return Err(error),
            };
            Ok(match value {
                Value::String(_) if nested => api::quote::go_quote(&text),
                Value::Bytes(_) if nested => format!("b{}", api::quote::go_quote(&text)),
                Value::Timestamp(_) if nested => format!("timestamp({})", api::quote::go_quote(&text)),
                Value::Duration(_) if nested => format!("duration({})", api::quote::go_quote(&text)),
                _ => text,
            })
        }
    }
}

fn no_format(value: &Value<'_>, nested: bool) -> EvalError {
    if nested {
        EvalError::failed(format!("no formatting function for {}", value.type_of().name()))
    } else {
        EvalError::overload()
    }
}

fn format_nested_double(value: f64) -> String {
    let text = match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        value => return format!("{value:.DEFAULT_PRECISION$}"),
    };
    api::quote::go_quote(&text)
}

fn format_list(call: &Call<'_>, list: &List<'_>) -> Result<String, EvalError> {
    let mut out = "[".to_owned();
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        out.push_str(&format_value(call, &item?, true)?);
        check_length(out.len())?;
    }
    out.push(']');
    Ok(out)
}

fn format_map(call: &Call<'_>, map: &Map<'_>) -> Result<String, EvalError> {
    let mut entries = Vec::with_capacity(map.len());
    for key in map.keys() {
        if matches!(key, Value::Double(_)) {
            let message = format!("no formatting function for map key of type {}", key.type_of().name());
            return Err(EvalError::failed(message));
        }
        let value = map.find(&key)?.unwrap_or(Value::Null);
        entries.push(format!("{}:{}", format_value(call, &key, true)?, format_value(call, &value, true)?));
        check_length(entries.len() * 4)?;
    }
    entries.sort();
    Ok(format!("{{{}}}", entries.join(", ")))
}
