//! Lists that are sets or maps have no duplicates.

use api::field::{Errors, Path};
use api::{Map, Str, Tree, json};

use super::schema::{ListType, Schema};

/// Reports items that occur twice.
pub(super) fn validate(value: &Tree, schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Tree::Map(map) => fields(map, schema, path, errors),
        Tree::List(items) => list(items, schema, path, errors),
        _ => {}
    }
}

fn fields(map: &Map, schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in map.iter() {
        if let Some(inner) = schema.property(key) {
            validate(value, inner, &path.field(key), errors);
        } else if let Some(inner) = schema.additional_schema() {
            validate(value, inner, &path.key(key), errors);
        }
    }
}

fn list(items: &[Tree], schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    match schema.list_type {
        ListType::Set => {
            for at in repeated(items.iter().map(text)) {
                errors.duplicate(&path.index(at), &items[at]);
            }
        }
        ListType::Map => map_list(items, schema, path, errors),
        ListType::Atomic => {}
    }
    if let Some(inner) = schema.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            validate(item, inner, &path.index(index), errors);
        }
    }
}

fn map_list(items: &[Tree], schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    let mut keys = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match item {
            Tree::Map(map) => keys.push(key_of(map, schema)),
            _ => {
                errors.invalid(&path.index(index), item, "must be an object for an array of list-type map");
                return;
            }
        }
    }
    for at in repeated(keys.iter().map(text)) {
        errors.duplicate(&path.index(at), &keys[at]);
    }
}

/// The key fields of an item that are set, or have a default.
fn key_of(map: &Map, schema: &Schema) -> Tree {
    let value = |key: &Str| {
        let default = || schema.items.as_deref()?.property(key)?.default.as_ref();
        map.get(key).or_else(default).cloned()
    };
    let mut out = Map::new();
    for key in &schema.list_keys {
        if let Some(value) = value(key) {
            out.insert(key.clone(), value);
        }
    }
    Tree::Map(out)
}

fn text(tree: &Tree) -> Vec<u8> {
    json::encode(tree, None)
}

/// The second of each equal items.
fn repeated(items: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let mut seen: std::collections::HashMap<Vec<u8>, usize> = std::collections::HashMap::new();
    let mut out = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            out.push(index);
        }
    }
    out
}
