//! An object without the fields of a set, or with only those.

use super::set::{Element, Entry, FieldSet};
use super::shape::{Keys, Shape, Typed, item_element};
use crate::schema::TypeRef;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// The object without the set's fields. Empty values become null.
pub(crate) fn remove_items(tree: &Tree, set: &FieldSet, ty: TypeRef<'_>) -> Tree {
    Walk { extract: false }.node(tree, set, Typed::root(ty), 0)
}

/// The set's fields of an object, with the keys of list items.
#[cfg(test)]
pub(crate) fn extract_items(tree: &Tree, set: &FieldSet, ty: TypeRef<'_>) -> Tree {
    Walk { extract: true }.node(tree, set, Typed::root(ty), 0)
}

struct Walk {
    extract: bool,
}

impl Walk {
    fn node(&self, tree: &Tree, set: &FieldSet, typed: Typed<'_>, depth: usize) -> Tree {
        if depth > MAX_DEPTH {
            return Tree::Null;
        }
        match (typed.shape(tree), tree) {
            (Shape::Struct(ty), Tree::Map(map)) => self.fields(map, set, depth, |name| ty.field(name)),
            (Shape::Map(item), Tree::Map(map)) => self.fields(map, set, depth, |_| Some(item)),
            (Shape::List(keys, item), Tree::List(items)) => self.list(items, set, keys, item, depth),
            (Shape::Leaf, Tree::List(_) | Tree::Map(_)) if !self.extract => Tree::Null,
            (Shape::Leaf, leaf) => leaf.clone(),
            _ => Tree::Null,
        }
    }

    fn fields<'a>(&self, map: &Map, set: &FieldSet, depth: usize, typed: impl Fn(&str) -> Option<Typed<'a>>) -> Tree {
        let mut out = Vec::with_capacity(map.len());
        for (name, value) in map.iter() {
            let entry = set.get_field(name);
            if let Some(kept) = self.kept(value, entry, typed(name), depth) {
                out.push((Str::new(name), kept));
            }
        }
        if out.is_empty() { Tree::Null } else { Tree::Map(Map::from_entries(out, |_| {})) }
    }

    fn kept(&self, value: &Tree, entry: Option<&Entry>, typed: Option<Typed<'_>>, depth: usize) -> Option<Tree> {
        match entry {
            None if self.extract => None,
            None => Some(value.clone()),
            Some(entry) if entry.member && !self.extract => None,
            Some(entry) if entry.children.is_empty() => Some(value.clone()),
            Some(entry) => Some(match typed {
                Some(typed) => self.node(value, &entry.children, typed, depth + 1),
                None => value.clone(),
            }),
        }
    }

    fn list(&self, items: &[Tree], set: &FieldSet, keys: Keys<'_>, item: Typed<'_>, depth: usize) -> Tree {
        let mut out = Vec::with_capacity(items.len());
        for value in items {
            let element = item_element(value, keys, item).ok();
            let entry = element.as_ref().and_then(|element| set.get(element));
            if let Some(mut kept) = self.kept(value, entry, Some(item), depth) {
                if self.extract
                    && let Some(element) = element
                {
                    keep_keys(&mut kept, element);
                }
                out.push(kept);
            }
        }
        if out.is_empty() { Tree::Null } else { Tree::List(out) }
    }
}

/// An extracted item always has its keys.
fn keep_keys(item: &mut Tree, element: Element) {
    if let Element::Key(fields) = element {
        for (name, value) in fields {
            item.set_default(&name, value);
        }
    }
}
