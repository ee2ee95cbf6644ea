//! Conversion of keys and values between the store and etcd, where all keys have a prefix.

use std::sync::Arc;

use super::leases::Leases;
use super::proto::{EVENT_DELETE, Event as Change, KeyValue};
use crate::{Entry, Event};

/// etcd's marker for the end of all keys, and for the first key.
pub(crate) const END: &[u8] = b"\0";

pub(crate) struct Keys {
    pub prefix: String,
}

impl Keys {
    pub(super) fn full(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// The end of a range: never after the last key with the prefix.
    pub(super) fn end(&self, end: &str) -> Vec<u8> {
        if end.is_empty() { prefix_end(self.prefix.as_bytes()) } else { self.full(end) }
    }

    /// The store's key; None if it has another prefix or is not UTF-8.
    fn strip_prefix<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key).ok()?.strip_prefix(self.prefix.as_str())
    }

    pub(super) fn entry(&self, kv: KeyValue, leases: &Leases) -> Option<Arc<Entry>> {
        let key = self.strip_prefix(&kv.key)?.into();
        let expires = leases.expires(kv.lease);
        Some(Arc::new(Entry { key, value: kv.value.into(), revision: kv.mod_revision as u64, expires }))
    }

    pub(super) fn event(&self, change: Change, leases: &Leases) -> Option<Event> {
        let kv = change.kv?;
        let (key, revision) = (self.strip_prefix(&kv.key)?.into(), kv.mod_revision as u64);
        let previous = change.prev_kv.and_then(|previous| self.entry(previous, leases));
        let entry = if change.kind == EVENT_DELETE { None } else { Some(self.entry(kv, leases)?) };
        Some(Event { revision, key, entry, previous })
    }
}

/// The first key after all keys with the prefix.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    END.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_end() {
        for (prefix, expected) in [(&b"/registry"[..], &b"/registrz"[..]), (b"", END), (b"a\xff", b"b"), (b"\xff", END)]
        {
            assert_eq!(prefix_end(prefix), expected);
        }
    }

    #[test]
    fn ignores_keys_without_the_prefix() {
        let keys = Keys { prefix: "/registry".to_owned() };
        assert_eq!(keys.strip_prefix(b"/registry/pods/a"), Some("/pods/a"));
        assert_eq!(keys.strip_prefix(b"compact_rev_key"), None);
        assert_eq!(keys.strip_prefix(b"/registry/\xff"), None);
        assert_eq!(keys.full("/pods/a"), b"/registry/pods/a");
    }
}
