//! The typed merge of an applied object into the live one.

use super::compare::zip_maps;
use super::set::Element;
use super::shape::{Keys, Shape, Typed, item_element};
use crate::schema::TypeRef;
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// The live object with the values of the applied one. Applied list items keep their order; live items that were not
/// applied keep their position between them.
pub fn merge(live: &Tree, applied: &Tree, ty: TypeRef<'_>) -> Tree {
    node(Some(live), Some(applied), Typed::root(ty), 0).unwrap_or_else(Tree::map_new)
}

fn node(live: Option<&Tree>, applied: Option<&Tree>, typed: Typed<'_>, depth: usize) -> Option<Tree> {
    if depth > MAX_DEPTH {
        return keep(live, applied);
    }
    match typed.shape_of(live, applied) {
        Shape::Leaf => keep(live, applied),
        Shape::Struct(ty) => fields(live, applied, depth, |name| ty.field(name)),
        Shape::Map(item) => fields(live, applied, depth, |_| Some(item)),
        Shape::List(keys, item) => list(live, applied, keys, item, depth),
    }
}

fn keep(live: Option<&Tree>, applied: Option<&Tree>) -> Option<Tree> {
    applied.or(live).cloned()
}

static NO_FIELDS: Map = Map::new();

fn fields<'a>(
    live: Option<&Tree>,
    applied: Option<&Tree>,
    depth: usize,
    typed: impl Fn(&str) -> Option<Typed<'a>>,
) -> Option<Tree> {
    let live_map = live.and_then(Tree::as_map).unwrap_or(&NO_FIELDS);
    let applied_map = applied.and_then(Tree::as_map).unwrap_or(&NO_FIELDS);
    if live_map.is_empty() && applied_map.is_empty() {
        return keep(live, applied);
    }
    let mut out = Vec::with_capacity(live_map.len() + applied_map.len());
    zip_maps(live_map, applied_map, &mut |name, live, applied| {
        let merged = match typed(name) {
            Some(typed) => node(live, applied, typed, depth + 1),
            None => keep(live, applied),
        };
        if let Some(value) = merged {
            out.push((Str::new(name), value));
        }
    });
    Some(Tree::Map(Map::from_entries(out, |_| {})))
}

fn list(live: Option<&Tree>, applied: Option<&Tree>, keys: Keys<'_>, item: Typed<'_>, depth: usize) -> Option<Tree> {
    let live_items = live.and_then(Tree::as_list).unwrap_or(&[]);
    let applied_items = applied.and_then(Tree::as_list).unwrap_or(&[]);
    if live_items.is_empty() && applied_items.is_empty() {
        return keep(live, applied);
    }
    let live = index(live_items, keys, item);
    let applied = index(applied_items, keys, item);
    let mut out = Vec::with_capacity(live.items.len() + applied.items.len());
    for (old, new) in in_order(&live, &applied) {
        out.extend(node(old, new, item, depth + 1));
    }
    (!out.is_empty()).then_some(Tree::List(out))
}

/// A list with the elements of its items, and the item indexes sorted by element.
struct Index<'a> {
    items: Vec<(Element, &'a Tree)>,
    sorted: Vec<usize>,
}

fn index<'a>(items: &'a [Tree], keys: Keys<'_>, item: Typed<'_>) -> Index<'a> {
    let with_element = |value: &'a Tree| item_element(value, keys, item).ok().map(|element| (element, value));
    let items: Vec<(Element, &Tree)> = items.iter().filter_map(with_element).collect();
    let mut sorted: Vec<usize> = (0..items.len()).collect();
    sorted.sort_by(|a, b| items[*a].0.order(&items[*b].0));
    Index { items, sorted }
}

impl<'a> Index<'a> {
    /// The first item with this element.
    fn find(&self, element: &Element) -> Option<&'a Tree> {
        let at = self.sorted.partition_point(|place| self.items[*place].0.order(element).is_lt());
        let (found, value) = self.items.get(*self.sorted.get(at)?)?;
        found.order(element).is_eq().then_some(*value)
    }
}

type Pair<'a> = (Option<&'a Tree>, Option<&'a Tree>);

/// The pairs to merge. Walks both lists at once: items only in the live list stay before the next shared item; shared
/// items follow the applied order. A live item with a duplicate key is kept unless the key is applied, which then
/// replaces all of them.
fn in_order<'a>(live: &Index<'a>, applied: &Index<'a>) -> Vec<Pair<'a>> {
    let mut out = Vec::with_capacity(live.items.len() + applied.items.len());
    let mut shared = applied.items.iter().filter(|(element, _)| live.find(element).is_some()).peekable();
    let (mut old_at, mut new_at) = (0, 0);
    loop {
        let (old, new) = (live.items.get(old_at), applied.items.get(new_at));
        let next_shared = shared.peek().map(|(element, _)| element);
        match (old, new) {
            (None, None) => return out,
            (Some((element, value)), Some((new_element, new_value))) if element.order(new_element).is_eq() => {
                out.push((Some(*value), Some(*new_value)));
                (old_at, new_at) = (old_at + 1, new_at + 1);
                shared.next();
            }
            (Some((element, _)), Some(_))
                if applied.find(element).is_some() && next_shared.is_some_and(|next| next.order(element).is_ne()) =>
            {
                old_at += 1;
            }
            (Some((element, value)), _) if applied.find(element).is_none() => {
                out.push((Some(*value), None));
                old_at += 1;
            }
            (Some(_), None) => old_at += 1,
            (_, Some((element, value))) => {
                out.push((live.find(element), Some(*value)));
                new_at += 1;
                if next_shared.is_some_and(|next| next.order(element).is_eq()) {
                    shared.next();
                }
            }
        }
    }
}
