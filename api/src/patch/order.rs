//! The order of merged lists: patched items in the patch's order, others at their position.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::apply::order_values;
use crate::tree::Tree;

/// A merge key value, or a scalar item, as a map key.
#[derive(Clone, Copy)]
pub(super) struct Id<'a>(pub &'a Tree);

impl Ord for Id<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order_values(self.0, other.0)
    }
}

impl PartialOrd for Id<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Id<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Id<'_> {}

static NULL: Tree = Tree::Null;

/// The identity of an item: its merge key, or the item itself if it has none.
pub(super) fn id_of<'a>(item: &'a Tree, merge_key: Option<&str>) -> Id<'a> {
    match merge_key {
        None => Id(item),
        Some(key) => Id(item.get(key).unwrap_or(&NULL)),
    }
}

/// The first index of each item.
pub(super) fn places<'a>(items: &'a [Tree], merge_key: Option<&str>) -> BTreeMap<Id<'a>, usize> {
    let mut places = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        places.entry(id_of(item, merge_key)).or_insert(at);
    }
    places
}

/// Sorts the items of a merged list by the patch's order; items that the patch does not name precede the first
/// patched item that followed them on the server.
pub(super) fn arrange(
    merged: Vec<Tree>,
    patch_order: &[Tree],
    server_order: &[Tree],
    merge_key: Option<&str>,
) -> Vec<Tree> {
    let patch_places = places(patch_order, merge_key);
    let server_places = places(server_order, merge_key);
    let (mut patched, mut others): (Vec<Tree>, Vec<Tree>) =
        merged.into_iter().partition(|item| patch_places.contains_key(&id_of(item, merge_key)));
    patched.sort_by_key(|item| patch_places.get(&id_of(item, merge_key)).copied());
    others.sort_by_key(|item| server_places.get(&id_of(item, merge_key)).copied());
    let mut out = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    let place = |item: &Tree| server_places.get(&id_of(item, merge_key)).copied();
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(patch)) => match (place(other), place(patch)) {
                (Some(other), Some(patch)) => other < patch,
                _ => false,
            },
        };
        out.extend(if other_first { others.next() } else { patched.next() });
    }
}
