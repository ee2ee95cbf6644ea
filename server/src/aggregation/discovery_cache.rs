//! The discovery documents of extension API servers. They are kept while a server is unavailable.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Tree, json};
use stdx::sync::Mutex;

#[derive(Default)]
pub(super) struct DiscoveryCache {
    /// APIResourceLists by the name of the APIService.
    lists: Mutex<HashMap<String, Arc<Tree>>>,
    changes: AtomicU64,
}

impl DiscoveryCache {
    pub(super) fn get(&self, name: &str) -> Option<Arc<Tree>> {
        self.lists.lock().get(name).cloned()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Keeps the response of an extension API server if it is a list of resources.
    pub(super) fn record(&self, name: &str, response: &[u8]) {
        let Ok(list) = json::decode(response) else { return };
        let mut lists = self.lists.lock();
        if list.str("kind") == "APIResourceList" && lists.get(name).is_none_or(|known| **known != list) {
            lists.insert(name.to_string(), Arc::new(list));
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Drops the documents of all other APIServices.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.lists.lock().retain(|name, _| is_known(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lists_count() {
        let discovered = DiscoveryCache::default();
        let list = br#"{"kind":"APIResourceList","resources":[]}"#;
        for response in [&b"no JSON"[..], br#"{"kind":"Status"}"#, list, list] {
            discovered.record("a", response);
        }
        assert_eq!(discovered.changes(), 1);
        assert!(discovered.get("a").is_some());
        discovered.retain(|name| name != "a");
        assert!(discovered.get("a").is_none());
    }
}
