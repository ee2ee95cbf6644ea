//! JSON merge patch, RFC 7386.

use super::into_map;
use crate::tree::{Map, Str, Tree};

/// Merges the patch: null removes, maps merge, anything else replaces.
pub fn merge(original: Tree, patch: &Tree) -> Tree {
    let Tree::Map(patch) = patch else { return patch.clone() };
    Tree::Map(merge_map(into_map(original), patch))
}

/// One pass over both sorted maps, so that a patch of many keys is cheap.
fn merge_map(original: Map, patch: &Map) -> Map {
    let mut out = Vec::with_capacity(original.len() + patch.len());
    let mut patches = patch.iter().peekable();
    for (key, value) in original.into_entries() {
        while let Some((new, value)) = patches.next_if(|(new, _)| *new < key.as_str()) {
            add_new(&mut out, new, value);
        }
        match patches.next_if(|(new, _)| *new == key.as_str()) {
            None => out.push((key, value)),
            Some((_, Tree::Null)) => {}
            Some((_, patch)) => out.push((key, merge(value, patch))),
        }
    }
    patches.for_each(|(new, value)| add_new(&mut out, new, value));
    Map::from_entries(out, |_| {})
}

fn add_new(out: &mut Vec<(Str, Tree)>, key: &str, value: &Tree) {
    if !value.is_null() {
        out.push((Str::new(key), merge(Tree::Null, value)));
    }
}
