//! The paths claimed by an applied object.

use super::set::{Element, FieldSet};
use super::shape::{Keys, Shape, Typed, item_element};
use crate::schema::TypeRef;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// Every leaf of an object: scalars, atomic values, items, map entries, nulls and empty maps. A struct with fields is
/// not a leaf, and an empty list claims nothing.
pub(crate) fn to_field_set(tree: &Tree, ty: TypeRef<'_>) -> FieldSet {
    node(tree, Typed::root(ty), 0).1
}

/// Whether the value's own path is claimed, and the paths below it.
fn node(value: &Tree, typed: Typed<'_>, depth: usize) -> (bool, FieldSet) {
    if depth > MAX_DEPTH {
        return (true, FieldSet::new());
    }
    match (typed.shape(value), value) {
        (Shape::Leaf, _) => (true, FieldSet::new()),
        (Shape::Struct(ty), Tree::Map(map)) => (false, fields(map, depth, |name| ty.field(name))),
        (Shape::Map(item), Tree::Map(map)) => (false, entries(map, item, depth)),
        (Shape::List(keys, item), Tree::List(items)) => (false, list(items, keys, item, depth)),
        _ => (false, FieldSet::new()),
    }
}

fn fields<'a>(map: &Map, depth: usize, typed: impl Fn(&str) -> Option<Typed<'a>>) -> FieldSet {
    let mut out = FieldSet::with_capacity(map.len());
    for (name, value) in map.iter() {
        let Some(typed) = typed(name) else { continue };
        let (own, below) = node(value, typed, depth + 1);
        out.push(Element::Field(Str::new(name)), own || is_nothing(value), below);
    }
    out
}

fn entries(map: &Map, item: Typed<'_>, depth: usize) -> FieldSet {
    let mut out = FieldSet::with_capacity(map.len());
    for (name, value) in map.iter() {
        out.push(Element::Field(Str::new(name)), true, node(value, item, depth + 1).1);
    }
    out
}

fn is_nothing(value: &Tree) -> bool {
    value.is_null() || value.as_map().is_some_and(Map::is_empty)
}

fn list(items: &[Tree], keys: Keys<'_>, item: Typed<'_>, depth: usize) -> FieldSet {
    let mut elements: Vec<(Element, &Tree)> = Vec::with_capacity(items.len());
    for value in items {
        if let Ok(element) = item_element(value, keys, item) {
            elements.push((element, value));
        }
    }
    elements.sort_by(|a, b| a.0.order(&b.0));
    let mut out = FieldSet::with_capacity(elements.len());
    let mut rest = elements.into_iter().peekable();
    while let Some((element, value)) = rest.next() {
        let mut repeats = false;
        while rest.next_if(|(next, _)| next.order(&element).is_eq()).is_some() {
            repeats = true;
        }
        let below = if repeats { FieldSet::new() } else { node(value, item, depth + 1).1 };
        out.push(element, true, below);
    }
    out
}

/// Adds struct fields on the path to a member as members, so that removing the last value below a field can remove
/// the field itself.
pub(super) fn with_named_fields(set: &FieldSet, ty: TypeRef<'_>) -> FieldSet {
    named(set, Some(Typed::root(ty)), 0)
}

fn named(set: &FieldSet, typed: Option<Typed<'_>>, depth: usize) -> FieldSet {
    if depth > MAX_DEPTH {
        return set.clone();
    }
    let mut out = FieldSet::with_capacity(set.entries().len());
    for entry in set.entries() {
        let (is_named, below) = step(&entry.element, typed);
        let member = entry.member || is_named && !entry.children.is_empty();
        out.push(entry.element.clone(), member, named(&entry.children, below, depth + 1));
    }
    out
}

fn step<'a>(element: &Element, typed: Option<Typed<'a>>) -> (bool, Option<Typed<'a>>) {
    match (element, typed.map(Typed::plain_shape)) {
        (Element::Field(name), Some(Shape::Struct(ty))) => (ty.is_named(name), ty.field(name)),
        (Element::Field(_), Some(Shape::Map(item))) => (false, Some(item)),
        (Element::Key(_), Some(Shape::List(_, item))) => (false, Some(item)),
        _ => (false, None),
    }
}
