//! JSON patch (RFC 6902) with the deviations of upstream's implementation: `replace` of a missing key adds it, and
//! text before the first slash of a path is ignored.

use super::{Error, go, too_deep};
use crate::json::{self, Strict};
use crate::tree::{Map, Str, Tree};

/// The maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;
/// The maximum total size of copies in a patch.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// One operation of a JSON patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: Str,
    /// The JSON pointer of the target.
    pub path: Option<Str>,
    /// The JSON pointer of the source of `move` and `copy`.
    pub from: Option<Str>,
    /// The value of `add`, `replace` and `test`.
    pub value: Tree,
}

/// Why an operation does not apply to the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error("{0} operation failed to decode path")]
    NoPath(Str),
    #[error("{0} operation failed to decode from")]
    NoFrom(Str),
    #[error("Unexpected kind: {0}")]
    UnknownOperation(Str),
    #[error("operation does not apply: doc is missing path: {0:?}")]
    MissingPath(String),
    #[error("Unable to remove nonexistent key: {0}")]
    MissingKey(String),
    #[error("value was not a proper array index: '{0}'")]
    NotAnIndex(String),
    #[error("Unable to access invalid index: {0}")]
    InvalidIndex(String),
    #[error("exceeded max depth at {0:?}")]
    TooDeep(String),
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED_BYTES}"
    )]
    CopiesTooLarge(usize),
    #[error("testing value {0} failed")]
    TestFailed(String),
}

/// Decodes a patch. Duplicate and unknown fields of an operation are reported, not rejected.
pub fn decode(bytes: &[u8], strict: &mut Strict) -> Result<Vec<Operation>, Error> {
    let mut found = Strict::default();
    let tree = json::decode_as(bytes, None, &mut found).map_err(|error| bad(&error.to_string()))?;
    let items = match tree {
        Tree::List(items) => items,
        Tree::Null => Vec::new(),
        other => {
            let kind = go::json_kind(&other);
            return Err(bad(&format!("json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp")));
        }
    };
    if items.len() > MAX_OPERATIONS {
        let got = items.len();
        let text = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {got}");
        return Err(Error::TooLarge(format!("Request entity too large: {text}")));
    }
    let operations = items.into_iter().enumerate().map(|(at, item)| decode_operation(item, at, &mut found)).collect();
    found.problems.into_iter().for_each(|problem| strict.push(format!("json patch {problem}")));
    operations
}

fn bad(text: &str) -> Error {
    Error::BadRequest(format!("error decoding patch: {text}"))
}

fn decode_operation(item: Tree, at: usize, strict: &mut Strict) -> Result<Operation, Error> {
    let map = match item {
        Tree::Map(map) => map,
        Tree::Null => Map::new(),
        other => {
            let kind = go::json_kind(&other);
            return Err(bad(&format!("json: cannot unmarshal {kind} into Go value of type handlers.jsonPatchOp")));
        }
    };
    let mut operation = Operation { op: Str::const_new("unknown"), path: None, from: None, value: Tree::Null };
    for (key, value) in map.into_entries() {
        match key.as_str() {
            "op" => operation.op = text_of(value, "op")?.unwrap_or(Str::const_new("unknown")),
            "path" => operation.path = text_of(value, "path")?,
            "from" => operation.from = text_of(value, "from")?,
            "value" => operation.value = value,
            _ => strict.unknown(&format!("[{at}].{key}")),
        }
    }
    Ok(operation)
}

fn text_of(value: Tree, name: &str) -> Result<Option<Str>, Error> {
    match value {
        Tree::Null => Ok(None),
        Tree::Str(text) => Ok(Some(text)),
        other => {
            let kind = go::json_kind(&other);
            Err(bad(&format!("json: cannot unmarshal {kind} into Go struct field jsonPatchOp.{name} of type string")))
        }
    }
}

/// The object after all operations; nothing changes if one fails.
pub fn apply(mut object: Tree, operations: &[Operation]) -> Result<Tree, Error> {
    let mut copied = 0;
    for operation in operations {
        apply_one(&mut object, operation, &mut copied).map_err(|error| Error::Unprocessable(error.into()))?;
    }
    Ok(object)
}

fn apply_one(object: &mut Tree, operation: &Operation, copied: &mut usize) -> Result<(), OperationError> {
    let op = operation.op.as_str();
    let path = || operation.path.as_deref().ok_or_else(|| OperationError::NoPath(operation.op.clone()));
    let from = || operation.from.as_deref().ok_or_else(|| OperationError::NoFrom(operation.op.clone()));
    match op {
        "add" => add(object, path()?, operation.value.clone()),
        "remove" => remove(object, path()?).map(drop),
        "replace" => replace(object, path()?, operation.value.clone()),
        "test" => test(object, path()?, &operation.value),
        "move" => {
            let value = remove(object, from()?)?;
            add(object, path()?, value)
        }
        "copy" => {
            let value = get(object, from()?)?.cloned().unwrap_or_default();
            *copied += json::encode(&value, None).len();
            if *copied > MAX_COPIED_BYTES {
                return Err(OperationError::CopiesTooLarge(*copied));
            }
            add(object, path()?, value)
        }
        _ => Err(OperationError::UnknownOperation(operation.op.clone())),
    }
}

/// An object without the values of these operations: the rest is unchanged by them.
pub fn without_touched(mut object: Tree, operations: &[Operation]) -> Tree {
    for path in operations.iter().filter_map(|operation| operation.path.as_ref()) {
        // A path without a value changes nothing.
        let _ = remove(&mut object, path);
    }
    object
}

fn unescape(part: &str) -> String {
    if part.contains('~') { part.replace("~1", "/").replace("~0", "~") } else { part.to_string() }
}

/// The parts of a path below the root, and the last one.
fn parts(path: &str) -> Result<(Vec<String>, String), OperationError> {
    let mut parts: Vec<String> = path.split('/').skip(1).map(unescape).collect();
    let last = parts.pop().ok_or_else(|| missing(path))?;
    Ok((parts, last))
}

fn missing(path: &str) -> OperationError {
    OperationError::MissingPath(path.to_string())
}

fn child<'a>(tree: &'a Tree, part: &str) -> Option<&'a Tree> {
    match tree {
        Tree::Map(map) => map.get(part),
        Tree::List(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    }
}

fn child_mut<'a>(tree: &'a mut Tree, part: &str) -> Option<&'a mut Tree> {
    match tree {
        Tree::Map(map) => map.get_mut(part),
        Tree::List(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    }
}

/// The map or list of the last part of a path.
fn container<'a>(object: &'a mut Tree, path: &str) -> Result<(&'a mut Tree, String, usize), OperationError> {
    let (above, last) = parts(path)?;
    let mut here = object;
    for part in &above {
        here = child_mut(here, part).ok_or_else(|| missing(path))?;
    }
    match here {
        Tree::Map(_) | Tree::List(_) => Ok((here, last, above.len() + 1)),
        _ => Err(missing(path)),
    }
}

/// The value at a path; None if a map has no such key.
fn get<'a>(object: &'a Tree, path: &str) -> Result<Option<&'a Tree>, OperationError> {
    let (above, last) = parts(path)?;
    let mut here = object;
    for part in &above {
        here = child(here, part).ok_or_else(|| missing(path))?;
    }
    match here {
        Tree::Map(map) => Ok(map.get(&last)),
        Tree::List(_) => child(here, &last).map(Some).ok_or_else(|| missing(path)),
        _ => Err(missing(path)),
    }
}

/// A list index; negative ones count from the end.
fn index(text: &str, length: usize) -> Result<usize, OperationError> {
    let invalid = || OperationError::InvalidIndex(text.to_string());
    let index: i64 = text.parse().map_err(|_| OperationError::NotAnIndex(text.to_string()))?;
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok().filter(|index| (*index as i64) < length).ok_or_else(invalid)
}

fn add(object: &mut Tree, path: &str, value: Tree) -> Result<(), OperationError> {
    let (container, key, depth) = container(object, path)?;
    if too_deep(&value, depth) {
        return Err(OperationError::TooDeep(path.to_string()));
    }
    match container {
        Tree::List(items) if key == "-" => items.push(value),
        Tree::List(items) => items.insert(index(&key, items.len() + 1)?, value),
        Tree::Map(map) => drop(map.insert(key, value)),
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn replace(object: &mut Tree, path: &str, value: Tree) -> Result<(), OperationError> {
    let (container, key, depth) = container(object, path)?;
    if too_deep(&value, depth) {
        return Err(OperationError::TooDeep(path.to_string()));
    }
    match container {
        Tree::List(items) => {
            let at = index(&key, items.len())?;
            items[at] = value;
        }
        Tree::Map(map) => drop(map.insert(key, value)),
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(object: &mut Tree, path: &str) -> Result<Tree, OperationError> {
    let (container, key, _) = container(object, path)?;
    match container {
        Tree::List(items) => Ok(items.remove(index(&key, items.len())?)),
        Tree::Map(map) => map.remove(&key).ok_or(OperationError::MissingKey(key)),
        _ => Err(missing(path)),
    }
}

/// A missing key equals null.
fn test(object: &Tree, path: &str, value: &Tree) -> Result<(), OperationError> {
    match get(object, path)?.unwrap_or(&Tree::Null) == value {
        true => Ok(()),
        false => Err(OperationError::TestFailed(path.to_string())),
    }
}
