//! Equality and order of values, with lists of objects that are sets or maps.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;

use super::{CostTracker, EvalError, Key, List, Map, Value};
use crate::schema::{ListType, Schema};

/// Whether two values are equal. Values of different types are different, except numbers; typed values of objects and
/// of the libraries are an error to compare with other types.
pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    tracker.step(1)?;
    match (a, b) {
        (Value::Null, Value::Null) => Ok(true),
        (Value::Null, _) | (_, Value::Null) => Ok(false),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::String(a), Value::String(b)) => {
            tracker.step(a.len() / 64)?;
            Ok(**a == **b)
        }
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a == b),
        (Value::Duration(a), Value::Duration(b)) => Ok(a == b),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a == b),
        (Value::Type(a), Value::Type(b)) => Ok(a.name() == b.name()),
        (Value::List(a), Value::List(b)) => equal_lists(a, b, tracker),
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, tracker),
        (Value::Object(a), Value::Object(b)) => equal_objects(a, b, tracker),
        (Value::Optional(None), Value::Optional(None)) => Ok(true),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, tracker),
        (Value::Opaque(a), Value::Opaque(b)) => a.equal(b),
        (Value::Preserved(a), b) | (b, Value::Preserved(a)) => Ok(equals_tree(b, a)),
        (Value::Opaque(_), _) => Err(EvalError::overload()),
        (Value::List(List::Tree(_, Some(_)) | List::Merged(..)), _) | (Value::Map(Map::Tree(_, Some(_))), _) => {
            Err(EvalError::overload())
        }
        _ => Ok(compare_numbers(a, b) == Some(Ordering::Equal)),
    }
}

/// Whether a value is the same as a preserved one.
fn equals_tree(value: &Value<'_>, tree: &Tree) -> bool {
    match (value, tree) {
        (Value::Preserved(other), _) => *other == tree,
        (Value::Bool(a), Tree::Bool(b)) => a == b,
        (Value::Int(a), Tree::Int(b)) => a == b,
        (Value::Double(a), Tree::Float(b)) => a == b,
        (Value::String(a), Tree::Str(b)) => **a == **b,
        (Value::List(List::Tree(a, _)), Tree::List(b)) => *a == b.as_slice(),
        (Value::Map(Map::Tree(a, _)), Tree::Map(b)) => *a == b,
        _ => false,
    }
}

fn equal_lists(a: &List<'_>, b: &List<'_>, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.keyed() {
        Some(schema) if schema.list_type == ListType::Set => equal_sets(a, b, tracker),
        Some(schema) => equal_map_lists(a, b, schema, tracker),
        None => equal_items(a, b, tracker, !matches!(a, List::Tree(_, Some(_)))),
    }
}

/// Items that are errors count as equal in lists of expressions, as in upstream.
fn equal_items(a: &List<'_>, b: &List<'_>, tracker: &CostTracker<'_>, lenient: bool) -> Result<bool, EvalError> {
    for (a, b) in a.iter().zip(b.iter()) {
        match equal(&a?, &b?, tracker) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if lenient && !error.is_cancelled() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A form of a value under which equal values are equal keys.
fn element_key<'a>(value: &Value<'a>) -> Result<String, EvalError> {
    match Key::of(value) {
        Some(key) => Ok(format!("{key:?}")),
        None => match value {
            Value::Bytes(bytes) => Ok(format!("b{bytes:?}")),
            Value::Duration(nanos) => Ok(format!("d{nanos}")),
            Value::Timestamp(time) => Ok(format!("t{}.{}", time.seconds, time.nanos)),
            Value::Null => Ok("null".to_owned()),
            _ => Err(EvalError::overload()),
        },
    }
}

fn equal_sets(a: &List<'_>, b: &List<'_>, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    tracker.step(a.len() + b.len())?;
    let keys = |list: &List<'_>| list.iter().map(|item| element_key(&item?)).collect::<Result<Vec<_>, _>>();
    let (mut a, mut b) = (keys(a)?, keys(b)?);
    for keys in [&mut a, &mut b] {
        keys.sort_unstable();
        keys.dedup();
    }
    Ok(a == b)
}

/// The key of an item of a list of type map.
fn item_key(item: &Value<'_>, schema: &Schema) -> Result<String, EvalError> {
    let Value::Map(map) = item else { return Err(EvalError::overload()) };
    let mut key = String::new();
    for name in &schema.list_map_keys {
        let identifier = crate::schema::escape(name).unwrap_or_else(|| name.clone());
        let part = map.get(&identifier)?.map(|value| element_key(&value)).transpose()?;
        key.push_str(&part.unwrap_or_default());
        key.push('\u{0}');
    }
    Ok(key)
}

fn equal_map_lists(a: &List<'_>, b: &List<'_>, schema: &Schema, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    tracker.step(a.len() + b.len())?;
    let mut items = BTreeMap::new();
    for item in a.iter() {
        let item = item?;
        items.insert(item_key(&item, schema)?, item);
    }
    let mut seen = 0;
    for other in b.iter() {
        let other = other?;
        let Some(item) = items.get(&item_key(&other, schema)?) else { return Ok(false) };
        if !equal(item, &other, tracker)? {
            return Ok(false);
        }
        seen += 1;
    }
    Ok(seen == items.len())
}

/// The union of a set or map of an object with another list: items of the other list replace those with their key.
pub(super) fn merge<'a>(list: &List<'a>, schema: &'a Schema, other: &List<'a>) -> Result<List<'a>, EvalError> {
    let key = |item: &Value<'a>| match schema.list_type {
        ListType::Set => element_key(item),
        _ => item_key(item, schema),
    };
    let mut items = Vec::with_capacity(list.len() + other.len());
    let mut positions = BTreeMap::new();
    for item in list.iter() {
        let item = item?;
        positions.insert(key(&item)?, items.len());
        items.push(item);
    }
    for item in other.iter() {
        let item = item?;
        match positions.get(&key(&item)?) {
            Some(at) => items[*at] = item,
            None => {
                positions.insert(key(&item)?, items.len());
                items.push(item);
            }
        }
    }
    Ok(List::Merged(Arc::new(items), schema))
}

fn equal_maps(a: &Map<'_>, b: &Map<'_>, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let typed = matches!(a, Map::Tree(_, Some(_)));
    for key in a.keys() {
        let (mine, theirs) = (a.find(&key)?, b.find(&key)?);
        match (mine, theirs) {
            (Some(mine), Some(theirs)) => match equal(&mine, &theirs, tracker) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if !typed && !error.is_cancelled() => {}
                Err(error) => return Err(error),
            },
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    if typed { equal_unknown_fields(a, b) } else { Ok(true) }
}

/// Fields without a schema are compared as they are.
fn equal_unknown_fields(a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    let Map::Tree(mine, Some(schema)) = a else { return Ok(true) };
    for (key, value) in mine.iter().filter(|(key, _)| schema.property(key).is_none()) {
        let Map::Tree(theirs, _) = b else { return Err(EvalError::overload()) };
        if theirs.get(key).is_some_and(|other| other != value) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_objects(a: &super::Object<'_>, b: &super::Object<'_>, tracker: &CostTracker<'_>) -> Result<bool, EvalError> {
    if a.type_name != b.type_name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for ((name, value), (other_name, other)) in a.fields.iter().zip(&b.fields) {
        if name != other_name || !equal(value, other, tracker)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two values of comparable types.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Ok((**a).cmp(&**b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b).ok_or_else(|| EvalError::failed("NaN values cannot be ordered"))
        }
        _ => Err(EvalError::overload()),
    }
}

/// The order of two numbers; None if one of them is not a number.
pub(super) fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Int(a), Value::Double(b)) => compare_double(i128::from(*a), *b),
        (Value::Uint(a), Value::Double(b)) => compare_double(i128::from(*a), *b),
        (Value::Double(a), Value::Int(b)) => compare_double(i128::from(*b), *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => compare_double(i128::from(*b), *a).map(Ordering::reverse),
        _ => None,
    }
}

/// Integers are compared with doubles as doubles: large integers lose digits.
fn compare_double(integer: i128, double: f64) -> Option<Ordering> {
    (integer as f64).partial_cmp(&double)
}
