//! Finds the objects whose `spec.selector` matches another object.

use std::collections::BTreeSet;

use api::Tree;
use api::selector::Selector;
use client::{Index, Key, Store};

/// By one label of the selector, or by the namespace if it has none.
pub(crate) const SELECTOR: Index = Index { name: "selector", values: |object| vec![selector_key(object)] };

fn selector_key(object: &Tree) -> String {
    let namespace = object.str("metadata.namespace");
    match object.map("spec.selector.matchLabels").iter().next() {
        Some((name, value)) => client::index::label(namespace, name, value.as_str().unwrap_or("")),
        None => namespace.to_string(),
    }
}

/// The keys of objects in a store that select `chosen`. The store must be indexed by [`SELECTOR`].
pub(crate) fn selecting(store: &Store, chosen: &Tree) -> Vec<Key> {
    let namespace = chosen.str("metadata.namespace");
    let labels = chosen.map("metadata.labels");
    let mut places: Vec<String> = labels
        .iter()
        .map(|(name, value)| client::index::label(namespace, name, value.as_str().unwrap_or("")))
        .collect();
    places.push(namespace.to_string());
    let keys: BTreeSet<Key> = places.iter().flat_map(|place| store.find_keys(SELECTOR, place)).collect();
    let chooses = |key: &Key| store.get(key).is_some_and(|object| selector_of(&object).matches_map(labels));
    keys.into_iter().filter(chooses).collect()
}

/// A missing or invalid selector matches nothing.
pub(crate) fn selector_of(object: &Tree) -> Selector {
    match object.at("spec.selector") {
        Tree::Null => Selector::nothing(),
        selector => Selector::from_object(selector).unwrap_or_else(|_| Selector::nothing()),
    }
}
