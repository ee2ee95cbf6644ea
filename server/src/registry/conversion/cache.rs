//! Conversions that the comparison of managed fields needs. The comparison is not asynchronous: missing conversions are
//! recorded, fetched from the webhook, and found the next time.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use api::{Tree, json};
use stdx::sync::Mutex;

/// Enough for the concurrent writes.
const MAX_KNOWN: usize = 128;
/// The limit of recorded conversions that ended requests did not fetch.
const MAX_MISSING: usize = 128;

#[derive(Default)]
pub(crate) struct ConversionCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest last. None if the webhook failed.
    known: VecDeque<(Key, Option<Tree>)>,
    missing: VecDeque<PendingConversion>,
}

/// An object, and the version that it is converted to.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    object: u64,
    to: String,
}

/// A conversion that was not in the cache.
#[derive(Clone)]
pub(super) struct PendingConversion {
    pub(super) uid: String,
    pub(super) object: Tree,
    pub(super) to: String,
}

fn key(object: &Tree, to: &str) -> Key {
    let mut hasher = DefaultHasher::new();
    json::encode(object, None).hash(&mut hasher);
    Key { object: hasher.finish(), to: to.to_string() }
}

impl ConversionCache {
    /// The object in another version; None if it is not cached, and then it is recorded as pending.
    pub(crate) fn find(&self, object: &Tree, to: &str) -> Option<Tree> {
        let key = key(object, to);
        let mut state = self.state.lock();
        if let Some((_, converted)) = state.known.iter().find(|(known, _)| *known == key) {
            return converted.clone();
        }
        if state.missing.len() >= MAX_MISSING {
            state.missing.pop_front();
        }
        let uid = object.str("metadata.uid").to_string();
        state.missing.push_back(PendingConversion { uid, object: object.clone(), to: to.to_string() });
        None
    }

    /// Takes the pending conversions of one object.
    pub(super) fn take_missing(&self, uid: &str) -> Vec<PendingConversion> {
        let mut state = self.state.lock();
        let (own, others): (Vec<_>, Vec<_>) = state.missing.drain(..).partition(|missing| missing.uid == uid);
        state.missing = others.into();
        own
    }

    pub(super) fn add(&self, missing: &PendingConversion, converted: Option<Tree>) {
        let mut state = self.state.lock();
        if state.known.len() >= MAX_KNOWN {
            state.known.pop_front();
        }
        state.known.push_back((key(&missing.object, &missing.to), converted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn misses_are_noted_until_they_are_known() {
        let known = ConversionCache::default();
        let object = tree! { "metadata" => tree! { "uid" => "u" } };
        assert_eq!(known.find(&object, "g/v2"), None);
        assert!(known.take_missing("other").is_empty());
        let missing = known.take_missing("u");
        assert_eq!(missing.len(), 1);
        known.add(&missing[0], Some(tree! { "a" => 1 }));
        assert_eq!(known.find(&object, "g/v2"), Some(tree! { "a" => 1 }));
        assert!(known.take_missing("u").is_empty());
    }
}
