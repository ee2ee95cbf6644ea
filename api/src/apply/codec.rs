//! FieldsV1: a set of paths as nested maps, `{"f:spec":{"f:replicas":{}}}`.

use super::set::{Element, Entry, FieldSet};
use crate::json;
use crate::tree::{Map, Str, Tree};

/// FieldsV1 that is not a set of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("expected a map of fields")]
    NotFields,
    #[error("expected a map below {0:?}")]
    NotMap(String),
    #[error("key must be 2 characters long:")]
    ShortElement,
    #[error("missing colon: {0}")]
    NoColon(String),
    #[error("expected a map of key fields: {0}")]
    NotKey(String),
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error(transparent)]
    Index(#[from] std::num::ParseIntError),
}

/// The set as FieldsV1. A member with children has `.` among them.
pub(crate) fn encode(set: &FieldSet) -> Tree {
    Tree::Map(encode_map(set, false))
}

fn encode_map(set: &FieldSet, with_self: bool) -> Map {
    let mut entries = Vec::with_capacity(set.entries().len() + usize::from(with_self));
    if with_self {
        entries.push((Str::const_new("."), Tree::map_new()));
    }
    for Entry { element, member, children } in set.entries() {
        let below = if children.is_empty() { Map::new() } else { encode_map(children, *member) };
        entries.push((element_text(element), Tree::Map(below)));
    }
    Map::from_entries(entries, |_| {})
}

fn element_text(element: &Element) -> Str {
    match element {
        Element::Field(name) => {
            let mut text = Str::with_capacity(name.len() + 2);
            text.push_str("f:");
            text.push_str(name);
            text
        }
        Element::Key(fields) => key_text(fields),
        Element::Value(value) => value_text(value),
        Element::Index(index) => Str::from(format!("i:{index}")),
    }
}

fn key_text(fields: &[(Str, Tree)]) -> Str {
    let mut text = Str::const_new("k:{");
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        push_string(&mut text, name);
        text.push(':');
        push_value(&mut text, value);
    }
    text.push('}');
    text
}

/// Strings without escapes, as almost all keys, are written unchanged.
fn push_string(text: &mut Str, value: &str) {
    if value.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let mut out = Vec::new();
        json::write_string(&mut out, value);
        return text.push_str(&String::from_utf8_lossy(&out));
    }
    text.push('"');
    text.push_str(value);
    text.push('"');
}

fn push_value(text: &mut Str, value: &Tree) {
    match value {
        Tree::Str(value) => push_string(text, value),
        Tree::Int(value) => text.push_str(itoa::Buffer::new().format(*value)),
        other => text.push_str(&String::from_utf8_lossy(&json::encode(other, None))),
    }
}

fn value_text(value: &Tree) -> Str {
    let mut text = Str::const_new("v:");
    push_value(&mut text, value);
    text
}

/// FieldsV1 as a set. Unknown element types are dropped, as a later version may have added them.
pub(crate) fn decode(fields: &Tree) -> Result<FieldSet, DecodeError> {
    match fields {
        Tree::Null => Ok(FieldSet::new()),
        Tree::Map(map) => Ok(decode_map(map)?.0),
        _ => Err(DecodeError::NotFields),
    }
}

/// The paths below, and whether the map's own path is a member.
fn decode_map(map: &Map) -> Result<(FieldSet, bool), DecodeError> {
    let mut set = FieldSet::with_capacity(map.len());
    let mut own = false;
    for (key, value) in map.iter() {
        if key == "." {
            own = true;
            continue;
        }
        let Some(element) = decode_element(key)? else { continue };
        let Tree::Map(below) = value else { return Err(DecodeError::NotMap(key.to_string())) };
        let (children, member) = decode_map(below)?;
        set.push(element, member, children);
    }
    set.sort();
    own |= set.is_empty();
    Ok((set, own))
}

fn decode_element(text: &str) -> Result<Option<Element>, DecodeError> {
    if text.len() < 2 {
        return Err(DecodeError::ShortElement);
    }
    if text.as_bytes()[1] != b':' {
        return Err(DecodeError::NoColon(text.to_string()));
    }
    let rest = &text[2..];
    match text.as_bytes()[0] {
        b'f' => Ok(Some(Element::field(rest))),
        b'v' => Ok(Some(Element::Value(Box::new(json::decode(rest.as_bytes())?)))),
        b'k' => decode_key(rest).map(Some),
        b'i' => Ok(Some(Element::Index(rest.parse()?))),
        _ => Ok(None),
    }
}

fn decode_key(text: &str) -> Result<Element, DecodeError> {
    match json::decode(text.as_bytes())? {
        Tree::Map(map) => Ok(Element::Key(map.into_entries().into_boxed_slice())),
        _ => Err(DecodeError::NotKey(text.to_string())),
    }
}
