//! The differences of two objects, as sets of paths.

use super::set::{Element, FieldSet};
use super::shape::{Keys, Shape, Typed, item_element};
use crate::schema::TypeRef;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without the given paths and everything below them.
    pub(crate) fn exclude(self, reset: &FieldSet) -> Comparison {
        Comparison {
            added: self.added.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            removed: self.removed.recursive_difference(reset),
        }
    }

    fn push(&mut self, element: Element, own: Option<Change>, below: Comparison) {
        if own.is_none() && below.is_same() {
            return;
        }
        // Most elements are added to one set: the last one takes the element itself.
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

/// Compares two objects of a type. A field with null is present.
pub(crate) fn compare(old: &Tree, new: &Tree, ty: TypeRef<'_>) -> Comparison {
    node(Some(old), Some(new), Typed::root(ty), 0).1
}

type Node = (Option<Change>, Comparison);

fn node(old: Option<&Tree>, new: Option<&Tree>, typed: Typed<'_>, depth: usize) -> Node {
    match (old, new) {
        _ if depth > MAX_DEPTH => return (leaf(old, new), Comparison::default()),
        (None, Some(new)) => {
            let added = whole(new, typed, depth);
            return (Some(Change::Added), Comparison { added, ..Comparison::default() });
        }
        (Some(old), None) => {
            let removed = whole(old, typed, depth);
            return (Some(Change::Removed), Comparison { removed, ..Comparison::default() });
        }
        _ => {}
    }
    match typed.shape_of(old, new) {
        Shape::Leaf => (leaf(old, new), Comparison::default()),
        Shape::Struct(ty) => fields(old, new, depth, |name| ty.field(name)),
        Shape::Map(item) => fields(old, new, depth, |_| Some(item)),
        Shape::List(keys, item) => list(old, new, keys, item, depth),
    }
}

/// Every path below a value that only one side has, as in creates.
fn whole(value: &Tree, typed: Typed<'_>, depth: usize) -> FieldSet {
    match (typed.shape(value), value) {
        _ if depth > MAX_DEPTH => FieldSet::new(),
        (Shape::Struct(ty), Tree::Map(map)) => whole_map(map, depth, |name| ty.field(name)),
        (Shape::Map(item), Tree::Map(map)) => whole_map(map, depth, |_| Some(item)),
        (Shape::List(keys, item), Tree::List(items)) => whole_list(items, keys, item, depth),
        _ => FieldSet::new(),
    }
}

fn whole_map<'a>(map: &Map, depth: usize, typed: impl Fn(&str) -> Option<Typed<'a>>) -> FieldSet {
    let mut out = FieldSet::with_capacity(map.len());
    for (name, value) in map.iter() {
        if let Some(typed) = typed(name) {
            out.push(Element::Field(Str::new(name)), true, whole(value, typed, depth + 1));
        }
    }
    out
}

fn whole_list(items: &[Tree], keys: Keys<'_>, item: Typed<'_>, depth: usize) -> FieldSet {
    let mut out = FieldSet::with_capacity(items.len());
    let mut rest = sorted(items, keys, item).into_iter().peekable();
    while let Some((element, value)) = rest.next() {
        let mut repeats = false;
        while rest.next_if(|(next, _)| next.order(&element).is_eq()).is_some() {
            repeats = true;
        }
        let below = if repeats { FieldSet::new() } else { whole(value, item, depth + 1) };
        out.push(element, true, below);
    }
    out
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

fn fields<'a>(old: Option<&Tree>, new: Option<&Tree>, depth: usize, typed: impl Fn(&str) -> Option<Typed<'a>>) -> Node {
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

fn list(old: Option<&Tree>, new: Option<&Tree>, keys: Keys<'_>, item: Typed<'_>, depth: usize) -> Node {
    let old_items = old.and_then(Tree::as_list).unwrap_or(&[]);
    let new_items = new.and_then(Tree::as_list).unwrap_or(&[]);
    if old_items.is_empty() && new_items.is_empty() {
        return (leaf(old, new), Comparison::default());
    }
    let (old_sorted, new_sorted) = (sorted(old_items, keys, item), sorted(new_items, keys, item));
    let mut out = Comparison::default();
    if old_sorted.is_empty() {
        out.added = FieldSet::with_capacity(new_sorted.len());
    }
    let (mut old_rest, mut new_rest) = (old_sorted.as_slice(), new_sorted.as_slice());
    while let Some(element) = first(old_rest, new_rest) {
        let (old, new) = (run(&mut old_rest, element), run(&mut new_rest, element));
        let (own, below) = match old.len() > 1 || new.len() > 1 {
            true => (repeated(old, new), Comparison::default()),
            false => node(old.first().map(|item| item.1), new.first().map(|item| item.1), item, depth + 1),
        };
        if own.is_some() || !below.is_same() {
            out.push(element.clone(), own, below);
        }
    }
    (presence(old, new), out)
}

type Item<'a> = (Element, &'a Tree);

/// The items by element. An item without an element has no owner.
fn sorted<'a>(items: &'a [Tree], keys: Keys<'_>, item: Typed<'_>) -> Vec<Item<'a>> {
    let mut sorted: Vec<Item<'a>> = Vec::with_capacity(items.len());
    sorted.extend(items.iter().filter_map(|value| Some((item_element(value, keys, item).ok()?, value))));
    sorted.sort_by(|a, b| a.0.order(&b.0));
    sorted
}

fn first<'a>(old: &'a [Item<'_>], new: &'a [Item<'_>]) -> Option<&'a Element> {
    match (old.first(), new.first()) {
        (Some((old, _)), Some((new, _))) => Some(if old.order(new).is_le() { old } else { new }),
        (Some((element, _)), None) | (None, Some((element, _))) => Some(element),
        (None, None) => None,
    }
}

/// Takes the items with this element from the front.
fn run<'a, 'b>(rest: &mut &'b [Item<'a>], element: &Element) -> &'b [Item<'a>] {
    let length = rest.iter().take_while(|(next, _)| next.order(element).is_eq()).count();
    let (run, behind) = rest.split_at(length);
    *rest = behind;
    run
}

/// Items with duplicate keys are compared together, as one leaf.
fn repeated(old: &[Item<'_>], new: &[Item<'_>]) -> Option<Change> {
    match (old.is_empty(), new.is_empty()) {
        (true, _) => Some(Change::Added),
        (_, true) => Some(Change::Removed),
        _ if old.iter().map(|item| item.1).eq(new.iter().map(|item| item.1)) => None,
        _ => Some(Change::Modified),
    }
}
