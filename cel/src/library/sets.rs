//! Lists as sets.

use super::standard::contains;
use super::{Call, Function, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Value};

pub(super) const ROWS: &[Row] = &[
    ("sets.contains", "list_sets_contains_list", "(list<T>, list<T>) -> bool"),
    ("sets.equivalent", "list_sets_equivalent_list", "(list<T>, list<T>) -> bool"),
    ("sets.intersects", "list_sets_intersects_list", "(list<T>, list<T>) -> bool"),
];

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "sets.contains" => |call, args| contains_all(call, &args[0], &args[1]).map(Value::Bool),
        "sets.equivalent" => |call, args| {
            let both = contains_all(call, &args[0], &args[1])? && contains_all(call, &args[1], &args[0])?;
            Ok(Value::Bool(both))
        },
        "sets.intersects" => |call, args| {
            let (Value::List(a), b @ Value::List(_)) = (&args[0], &args[1]) else { return no_overload() };
            for item in a.iter() {
                if contains(call, b, &item?)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
        _ => return None,
    })
}

fn contains_all<'a>(call: &Call<'_>, list: &Value<'a>, part: &Value<'a>) -> Result<bool, EvalError> {
    let (Value::List(_), Value::List(items)) = (list, part) else { return Err(EvalError::overload()) };
    for item in items.iter() {
        if !contains(call, list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}
