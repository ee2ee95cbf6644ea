//! What one object has that another has not, as sets of paths.

use super::set::{Element, FieldSet};
use super::shape::{Shape, Typed, item_element};
use crate::schema::Type;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without the given paths and all below them.
    pub fn exclude(self, reset: &FieldSet) -> Comparison {
        Comparison {
            added: self.added.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            removed: self.removed.recursive_difference(reset),
        }
    }

    fn sort(&mut self) {
        self.added.sort();
        self.modified.sort();
        self.removed.sort();
    }

    fn push(&mut self, element: Element, own: Option<Change>, below: Comparison) {
        if own.is_none() && below.is_same() {
            return;
        }
        // Most elements land in one set: the last one takes the element itself.
        if !below.removed.is_empty() || own == Some(Change::Removed) {
            self.removed.push(element.clone(), own == Some(Change::Removed), below.removed);
        }
        if !below.modified.is_empty() || own == Some(Change::Modified) {
            self.modified.push(element.clone(), own == Some(Change::Modified), below.modified);
        }
        self.added.push(element, own == Some(Change::Added), below.added);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Added,
    Modified,
    Removed,
}

/// Compares two objects of a type. A field that is there with null is there.
pub fn compare(old: &Tree, new: &Tree, ty: &'static Type) -> Comparison {
    node(Some(old), Some(new), Typed::root(ty), 0).1
}

type Node = (Option<Change>, Comparison);

fn node(old: Option<&Tree>, new: Option<&Tree>, typed: Typed, depth: usize) -> Node {
    if depth > MAX_DEPTH {
        return (leaf(old, new), Comparison::default());
    }
    match typed.shape() {
        Shape::Leaf => (leaf(old, new), Comparison::default()),
        Shape::Struct(ty) => fields(old, new, depth, |name| ty.field(name).map(Typed::field)),
        Shape::Map(item) => fields(old, new, depth, |_| Some(item)),
        Shape::List(keys, item) => list(old, new, keys, item, depth),
    }
}

fn leaf(old: Option<&Tree>, new: Option<&Tree>) -> Option<Change> {
    match (old, new) {
        (Some(old), Some(new)) if old == new => None,
        (Some(_), Some(_)) => Some(Change::Modified),
        _ => presence(old, new),
    }
}

fn presence(old: Option<&Tree>, new: Option<&Tree>) -> Option<Change> {
    match (old, new) {
        (None, Some(_)) => Some(Change::Added),
        (Some(_), None) => Some(Change::Removed),
        _ => None,
    }
}

static NO_FIELDS: Map = Map::new();

fn fields(old: Option<&Tree>, new: Option<&Tree>, depth: usize, typed: impl Fn(&str) -> Option<Typed>) -> Node {
    let old_map = old.and_then(Tree::as_map).unwrap_or(&NO_FIELDS);
    let new_map = new.and_then(Tree::as_map).unwrap_or(&NO_FIELDS);
    if old_map.is_empty() && new_map.is_empty() {
        return (leaf(old, new), Comparison::default());
    }
    let mut out = Comparison::default();
    if old_map.is_empty() {
        out.added = FieldSet::with_capacity(new_map.len());
    }
    let mut pair = |name: &str, old: Option<&Tree>, new: Option<&Tree>| {
        if let Some(typed) = typed(name) {
            let (own, below) = node(old, new, typed, depth + 1);
            if own.is_some() || !below.is_same() {
                out.push(Element::Field(Str::new(name)), own, below);
            }
        }
    };
    zip_maps(old_map, new_map, &mut pair);
    (presence(old, new), out)
}

/// Calls `pair` for each key of either map, in order.
pub(super) fn zip_maps<'a>(a: &'a Map, b: &'a Map, pair: &mut impl FnMut(&'a str, Option<&'a Tree>, Option<&'a Tree>)) {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let a = if order.is_le() { left.next() } else { None };
        let b = if order.is_ge() { right.next() } else { None };
        if let Some((name, _)) = a.or(b) {
            pair(name, a.map(|(_, value)| value), b.map(|(_, value)| value));
        }
    }
}

fn list(old: Option<&Tree>, new: Option<&Tree>, keys: &'static [&'static str], item: Typed, depth: usize) -> Node {
    let old_items = old.and_then(Tree::as_list).unwrap_or(&[]);
    let new_items = new.and_then(Tree::as_list).unwrap_or(&[]);
    if old_items.is_empty() && new_items.is_empty() {
        return (leaf(old, new), Comparison::default());
    }
    let mut out = Comparison::default();
    for group in groups(old_items, new_items, keys, item) {
        let (own, below) = match (group.old.as_slice(), group.new.as_slice()) {
            (old, new) if old.len() > 1 || new.len() > 1 => (repeated(old, new), Comparison::default()),
            (old, new) => node(old.first().copied(), new.first().copied(), item, depth + 1),
        };
        out.push(group.element, own, below);
    }
    out.sort();
    (presence(old, new), out)
}

/// Items that repeat a key are judged together, as one leaf.
fn repeated(old: &[&Tree], new: &[&Tree]) -> Option<Change> {
    match (old.is_empty(), new.is_empty()) {
        (true, _) => Some(Change::Added),
        (_, true) => Some(Change::Removed),
        _ if old == new => None,
        _ => Some(Change::Modified),
    }
}

struct Group<'a> {
    element: Element,
    old: Vec<&'a Tree>,
    new: Vec<&'a Tree>,
}

/// The items of both lists by element, sorted. An item without an element is nobody's.
fn groups<'a>(old: &'a [Tree], new: &'a [Tree], keys: &'static [&'static str], item: Typed) -> Vec<Group<'a>> {
    let mut all: Vec<(Element, bool, &Tree)> = Vec::with_capacity(old.len() + new.len());
    for (items, is_new) in [(old, false), (new, true)] {
        for value in items {
            if let Ok(element) = item_element(value, keys, item) {
                all.push((element, is_new, value));
            }
        }
    }
    all.sort_by(|a, b| a.0.order(&b.0));
    let mut groups: Vec<Group<'a>> = Vec::with_capacity(all.len());
    for (element, is_new, value) in all {
        match groups.last_mut() {
            Some(last) if last.element.order(&element).is_eq() => last.add(is_new, value),
            _ => {
                let mut group = Group { element, old: Vec::new(), new: Vec::new() };
                group.add(is_new, value);
                groups.push(group);
            }
        }
    }
    groups
}

impl<'a> Group<'a> {
    fn add(&mut self, is_new: bool, value: &'a Tree) {
        if is_new { self.new.push(value) } else { self.old.push(value) }
    }
}
