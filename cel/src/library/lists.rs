//! Lists.

use std::cmp::Ordering;

use super::{Call, Function, no_overload, standard, strings};
use crate::library::signature::Row;
use crate::syntax::operators as op;
use crate::value::{EvalError, List, Value, compare, equal};

/// The maximum length of `lists.range`.
const MAX_RANGE: i64 = 1_000_000;

pub(super) const ROWS: &[Row] = &[
    ("slice", "list_slice", "list<T>.(int, int) -> list<T>"),
    ("flatten", "list_flatten", "list<list<T>>.() -> list<T>"),
    ("flatten", "list_flatten_int", "list<dyn>.(int) -> list<dyn>"),
    ("lists.range", "lists_range", "(int) -> list<int>"),
    ("reverse", "list_reverse", "list<T>.() -> list<T>"),
    ("distinct", "list_distinct", "list<T>.() -> list<T>"),
    ("indexOf", "list_a_index_of_int", "list<A>.(A) -> int"),
    ("lastIndexOf", "list_a_last_index_of_int", "list<A>.(A) -> int"),
];

pub(super) const INCLUDES: &[Row] = &[("includes", "list_includes_dyn_dyn", "dyn.(dyn) -> bool")];

const COMPARABLE: [(&str, &str); 8] = [
    ("int", "int"),
    ("uint", "uint"),
    ("double", "double"),
    ("bool", "bool"),
    ("duration", "google.protobuf.Duration"),
    ("timestamp", "google.protobuf.Timestamp"),
    ("string", "string"),
    ("bytes", "bytes"),
];

/// The overloads for each type that has an order or a sum. They live as long as the program.
pub(super) fn typed_rows() -> Vec<Row> {
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let mut rows = Vec::new();
    for (name, full) in COMPARABLE {
        let list = format!("list<{name}>");
        rows.push(("isSorted", leak(format!("list_{name}_is_sorted_bool")), leak(format!("{list}.() -> bool"))));
        rows.push(("max", leak(format!("list_{name}_max_{name}")), leak(format!("{list}.() -> {name}"))));
        rows.push(("min", leak(format!("list_{name}_min_{name}")), leak(format!("{list}.() -> {name}"))));
        rows.push(("sort", leak(format!("list_{full}_sort")), leak(format!("{list}.() -> {list}"))));
        let by_keys = leak(format!("list_{full}_sortByAssociatedKeys"));
        rows.push(("@sortByAssociatedKeys", by_keys, leak(format!("list<T>.({list}) -> list<T>"))));
        if matches!(name, "int" | "uint" | "double" | "duration") {
            rows.push(("sum", leak(format!("list_{name}_sum_{name}")), leak(format!("{list}.() -> {name}"))));
        }
    }
    rows
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "slice" => |_, args| match args {
            [Value::List(list), Value::Int(start), Value::Int(end)] => slice(list, *start, *end),
            _ => no_overload(),
        },
        "flatten" => |_, args| match args {
            [Value::List(list)] => flatten(list, 1),
            [Value::List(list), Value::Int(depth)] => flatten(list, *depth),
            _ => no_overload(),
        },
        "lists.range" => |_, args| match args {
            [Value::Int(length)] => range(*length),
            _ => no_overload(),
        },
        "reverse" => |_, args| {
            let mut items = items(&args[0])?;
            items.reverse();
            Ok(Value::list(items))
        },
        "distinct" => |call, args| distinct(call, &args[0]),
        "sort" => |_, args| sort(&args[0], &args[0]),
        "@sortByAssociatedKeys" => |_, args| sort(&args[0], &args[1]),
        "isSorted" => |_, args| is_sorted(&args[0]),
        "sum" => |call, args| sum(call, &args[0], Value::Int(0)),
        "sum_uint" => |call, args| sum(call, &args[0], Value::Uint(0)),
        "sum_double" => |call, args| sum(call, &args[0], Value::Double(0.0)),
        "sum_duration" => |call, args| sum(call, &args[0], Value::Duration(0)),
        "max" => |_, args| extreme(&args[0], Ordering::Less, "max"),
        "min" => |_, args| extreme(&args[0], Ordering::Greater, "min"),
        "indexOf" => |call, args| index_of(call, args, false),
        "lastIndexOf" => |call, args| index_of(call, args, true),
        "includes" => |call, args| match &args[0] {
            list @ Value::List(_) => standard::contains(call, list, &args[1]).map(Value::Bool),
            value => match equal(value, &args[1], call.tracker) {
                Err(error) if error.is_cancelled() => Err(error),
                compared => Ok(Value::Bool(compared == Ok(true))),
            },
        },
        _ => return None,
    })
}

fn items<'a>(list: &Value<'a>) -> Result<Vec<Value<'a>>, EvalError> {
    match list {
        Value::List(list) => list.iter().collect(),
        _ => Err(EvalError::overload()),
    }
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Result<Value<'a>, EvalError> {
    let fail = |cause: String| Err(EvalError::failed(format!("cannot slice({start}, {end}), {cause}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return fail("negative indexes not supported".to_owned());
    };
    if from > to {
        return fail("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return fail(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, _> = (from..to).filter_map(|at| list.get(at)).collect();
    items.map(Value::list)
}

fn flatten<'a>(list: &List<'a>, depth: i64) -> Result<Value<'a>, EvalError> {
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut items = Vec::new();
    flatten_into(list, depth, &mut items)?;
    Ok(Value::list(items))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(nested) if depth > 0 => flatten_into(&nested, depth - 1, out)?,
            item => out.push(item),
        }
    }
    Ok(())
}

fn range<'a>(length: i64) -> Result<Value<'a>, EvalError> {
    if length < 0 {
        return Err(EvalError::failed(format!("lists.range: size must be non-negative, got {length}")));
    }
    if length > MAX_RANGE {
        let message = format!("lists.range: size {length} exceeds maximum allowed ({MAX_RANGE})");
        return Err(EvalError::failed(message));
    }
    Ok(Value::list((0..length).map(Value::Int).collect()))
}

fn distinct<'a>(call: &Call<'_>, list: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in items(list)? {
        let mut seen = false;
        for other in &unique {
            match equal(&item, other, call.tracker) {
                Err(error) if error.is_cancelled() => return Err(error),
                compared => seen = compared == Ok(true),
            }
            if seen {
                break;
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

/// The list in the order of its keys.
fn sort<'a>(list: &Value<'a>, keys: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let (list, keys) = (items(list)?, items(keys)?);
    if list.len() != keys.len() {
        let message = format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        );
        return Err(EvalError::failed(message));
    }
    let Some(first) = keys.first() else { return Ok(Value::list(list)) };
    let kind = std::mem::discriminant(first);
    if compare(first, first).is_err() && !matches!(first, Value::Double(_)) {
        return Err(EvalError::failed("list elements must be comparable"));
    }
    if keys.len() > 1 && keys.iter().any(|key| std::mem::discriminant(key) != kind) {
        return Err(EvalError::failed("list elements must have the same type"));
    }
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by(|a, b| compare(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    Ok(Value::list(order.into_iter().map(|at| list[at].clone()).collect()))
}

fn is_sorted<'a>(list: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let items = items(list)?;
    let sorted = items.windows(2).all(|pair| compare(&pair[0], &pair[1]) != Ok(Ordering::Greater));
    Ok(Value::Bool(sorted))
}

/// The sum of the items. The zero of the item's type is that of an empty list.
fn sum<'a>(call: &Call<'_>, list: &Value<'a>, zero: Value<'a>) -> Result<Value<'a>, EvalError> {
    let add = standard::find(op::ADD).ok_or_else(EvalError::overload)?;
    let mut items = items(list)?.into_iter();
    let Some(mut total) = items.next() else { return Ok(zero) };
    for item in items {
        total = add(call, &[total, item])?;
    }
    Ok(total)
}

fn extreme<'a>(list: &Value<'a>, replace: Ordering, name: &str) -> Result<Value<'a>, EvalError> {
    let mut items = items(list)?.into_iter();
    let Some(mut found) = items.next() else {
        return Err(EvalError::failed(format!("{name} called on empty list")));
    };
    for item in items {
        if compare(&found, &item) == Ok(replace) {
            found = item;
        }
    }
    Ok(found)
}

fn index_of<'a>(call: &Call<'_>, args: &[Value<'a>], last: bool) -> Result<Value<'a>, EvalError> {
    let (Value::List(list), [_, item]) = (&args[0], args) else {
        return strings::index_of(args, last).map(Value::Int);
    };
    let is_item = |at: usize| -> Result<bool, EvalError> {
        let Some(element) = list.get(at) else { return Ok(false) };
        match equal(&element?, item, call.tracker) {
            Err(error) if error.is_cancelled() => Err(error),
            compared => Ok(compared == Ok(true)),
        }
    };
    for step in 0..list.len() {
        let at = if last { list.len() - 1 - step } else { step };
        if is_item(at)? {
            return Ok(Value::Int(i64::try_from(at).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}
