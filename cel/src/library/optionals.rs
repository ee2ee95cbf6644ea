//! Optional values, and what comprehensions with two variables insert into maps.

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::syntax::operators as op;
use crate::value::{EvalError, Key, Map, Value};

pub(super) const ROWS: &[Row] = &[
    ("optional.of", "optional_of", "(V) -> optional<V>"),
    ("optional.ofNonZeroValue", "optional_ofNonZeroValue", "(V) -> optional<V>"),
    ("optional.none", "optional_none", "() -> optional<V>"),
    ("value", "optional_value", "optional<V>.() -> V"),
    ("hasValue", "optional_hasValue", "optional<V>.() -> bool"),
    ("or", "optional_or_optional", "optional<V>.(optional<V>) -> optional<V>"),
    ("orValue", "optional_orValue_value", "optional<V>.(V) -> V"),
    (op::OPTIONAL_SELECT, "select_optional_field", "(dyn, string) -> optional<V>"),
    (op::OPTIONAL_INDEX, "list_optindex_optional_int", "(list<V>, int) -> optional<V>"),
    (op::OPTIONAL_INDEX, "optional_list_optindex_optional_int", "(optional<list<V>>, int) -> optional<V>"),
    (op::OPTIONAL_INDEX, "map_optindex_optional_value", "(map<K, V>, K) -> optional<V>"),
    (op::OPTIONAL_INDEX, "optional_map_optindex_optional_value", "(optional<map<K, V>>, K) -> optional<V>"),
    (op::INDEX, "optional_list_index_int", "(optional<list<V>>, int) -> optional<V>"),
    (op::INDEX, "optional_map_index_value", "(optional<map<K, V>>, K) -> optional<V>"),
    ("last", "list_last", "list<V>.() -> optional<V>"),
    ("first", "list_first", "list<V>.() -> optional<V>"),
    ("optional.unwrap", "optional_unwrap", "(list<optional<V>>) -> list<V>"),
    ("unwrapOpt", "optional_unwrapOpt", "list<optional<V>>.() -> list<V>"),
    (op::MAP_INSERT, "@mapInsert_map_key_value", "(map<K, V>, K, V) -> map<K, V>"),
    (op::MAP_INSERT, "@mapInsert_map_map", "(map<K, V>, map<K, V>) -> map<K, V>"),
];

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "optional.of" => |_, args| Ok(Value::some(args[0].clone())),
        "optional.ofNonZeroValue" => |_, args| {
            let value = &args[0];
            Ok(if value.is_zero() { Value::Optional(None) } else { Value::some(value.clone()) })
        },
        "optional.none" => |_, _| Ok(Value::Optional(None)),
        "value" => |_, args| match &args[0] {
            Value::Optional(Some(value)) => Ok((**value).clone()),
            Value::Optional(None) => Err(EvalError::failed("optional.none() dereference")),
            _ => no_overload(),
        },
        "hasValue" => |_, args| match &args[0] {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            _ => no_overload(),
        },
        "first" => |_, args| item(&args[0], |_| 0),
        "last" => |_, args| item(&args[0], |length| length - 1),
        "optional.unwrap" | "unwrapOpt" => |_, args| unwrap(&args[0]),
        op::MAP_INSERT => |_, args| insert(args),
        _ => return None,
    })
}

fn item<'a>(list: &Value<'a>, index: fn(usize) -> usize) -> Result<Value<'a>, EvalError> {
    let Value::List(list) = list else { return no_overload() };
    if list.is_empty() {
        return Ok(Value::Optional(None));
    }
    match list.get(index(list.len())) {
        Some(item) => Ok(Value::some(item?)),
        None => Ok(Value::Optional(None)),
    }
}

fn unwrap<'a>(list: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let Value::List(list) = list else { return no_overload() };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => items.push((*value).clone()),
            Value::Optional(None) => {}
            _ => return Err(EvalError::failed("value is not optional")),
        }
    }
    Ok(Value::list(items))
}

/// The accumulator of a comprehension, with an entry or the entries of a map.
fn insert<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let Value::Map(map) = &args[0] else { return no_overload() };
    let mut map = map.clone();
    insert_into(&mut map, &args[1..])?;
    Ok(Value::Map(map))
}

/// Inserts a key with its value, or all entries of a map. A key that exists is an error.
pub(crate) fn insert_into<'a>(map: &mut Map<'a>, args: &[Value<'a>]) -> Result<(), EvalError> {
    let Some(entries) = map.make_mut() else { return Err(EvalError::overload()) };
    let mut add = |key: &Value<'a>, value: Value<'a>| {
        let Some(found) = Key::of(key) else { return Err(EvalError::overload()) };
        if entries.insert(found, value).is_some() {
            let text = super::conversions::to_string(key)?;
            let text = text.as_str().unwrap_or_default().to_owned();
            return Err(EvalError::failed(format!("insert failed: key {text} already exists")));
        }
        Ok(())
    };
    match args {
        [key, value] => add(key, value.clone()),
        [Value::Map(other)] => {
            for key in other.keys() {
                let value = other.find(&key)?.unwrap_or(Value::Null);
                add(&key, value)?;
            }
            Ok(())
        }
        _ => Err(EvalError::overload()),
    }
}
