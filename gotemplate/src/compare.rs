//! The comparison functions. Only values of one basic kind have an order.

use std::cmp::Ordering;

use crate::error::CallError;
use crate::format;
use crate::value::Data;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Complex,
    Int,
    Uint,
    Float,
    Text,
    /// Values that are not basic.
    Invalid,
}

fn kind(data: &Data) -> Kind {
    match data {
        Data::Bool(_) => Kind::Bool,
        Data::Int(_) | Data::Int64(_) => Kind::Int,
        Data::Byte(_) => Kind::Uint,
        Data::Float(_) => Kind::Float,
        Data::Complex(..) => Kind::Complex,
        Data::Text(_) => Kind::Text,
        Data::Invalid | Data::Nil | Data::List(_) | Data::Map(_) => Kind::Invalid,
    }
}

fn is_nil(data: &Data) -> bool {
    matches!(data, Data::Invalid | Data::Nil)
}

/// Whether the first value equals one of the others.
pub(crate) fn equals_any(first: &Data, others: &[Data]) -> Result<bool, CallError> {
    if others.is_empty() {
        return Err(CallError::NoComparison);
    }
    for other in others {
        if equals(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equals(left: &Data, right: &Data) -> Result<bool, CallError> {
    match (left, right) {
        (Data::Bool(left), Data::Bool(right)) => Ok(left == right),
        (Data::Float(left), Data::Float(right)) => Ok(left == right),
        (Data::Complex(a, b), Data::Complex(c, d)) => Ok(a == c && b == d),
        (Data::Text(left), Data::Text(right)) => Ok(left == right),
        _ => match (left.as_int(), right.as_int()) {
            (Some(left), Some(right)) => Ok(left == right),
            _ if kind(left) != kind(right) => {
                if is_nil(left) || is_nil(right) {
                    Ok(false)
                } else {
                    Err(CallError::BadComparison)
                }
            }
            _ => equals_compound(left, right),
        },
    }
}

/// Lists and maps can only be compared with nil.
fn equals_compound(left: &Data, right: &Data) -> Result<bool, CallError> {
    if is_nil(left) || is_nil(right) {
        return Ok(is_nil(left) && is_nil(right));
    }
    let (left_type, right_type) = (left.type_name(), right.type_name());
    if left_type != right_type {
        let (left, right) = (format::with_verb(left, 's'), format::with_verb(right, 'v'));
        return Err(CallError::NotComparableTypes(left, left_type, right_type, right));
    }
    Err(CallError::NotComparable(format::with_verb(right, 's'), right_type))
}

/// The order of two values; None if one of them is not a number.
pub(crate) fn order(left: &Data, right: &Data) -> Result<Option<Ordering>, CallError> {
    let kinds = (kind(left), kind(right));
    if kinds.0 == Kind::Invalid || kinds.1 == Kind::Invalid {
        return Err(CallError::BadComparisonType);
    }
    match (left, right) {
        (Data::Float(left), Data::Float(right)) => Ok(left.partial_cmp(right)),
        (Data::Text(left), Data::Text(right)) => Ok(Some(left.cmp(right))),
        (Data::Bool(_), Data::Bool(_)) | (Data::Complex(..), Data::Complex(..)) => Err(CallError::BadComparisonType),
        _ => match (left.as_int(), right.as_int()) {
            (Some(left), Some(right)) => Ok(Some(left.cmp(&right))),
            _ => Err(CallError::BadComparison),
        },
    }
}
