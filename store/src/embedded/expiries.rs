//! The expiration times of entries. Exact: overwritten and deleted entries are removed, so it is never longer than
//! the number of entries with a TTL.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entries::Entries;
use crate::{Entry, Event, Revision};

#[derive(Default)]
pub(crate) struct Expiries(BTreeMap<(u64, Revision), Box<str>>);

impl Expiries {
    pub(super) fn of(entries: &Entries) -> Self {
        let mut expiries = Self::default();
        entries.iter().for_each(|entry| expiries.add(entry));
        expiries
    }

    pub(super) fn follow(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.0.remove(&(previous.expires, previous.revision));
        }
        if let Some(entry) = &event.entry {
            self.add(entry);
        }
    }

    pub(crate) fn earliest(&self) -> Option<Duration> {
        self.0.first_key_value().map(|(&(expires, _), _)| Duration::from_secs(expires))
    }

    /// The expired keys, at most `limit`.
    pub(super) fn due(&self, now: Duration, limit: usize) -> Vec<String> {
        let due = self.0.range(..(now.as_secs() + 1, 0)).take(limit);
        due.map(|(_, key)| key.to_string()).collect()
    }

    fn add(&mut self, entry: &Entry) {
        if entry.expires != 0 {
            self.0.insert((entry.expires, entry.revision), entry.key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn entry(key: &str, revision: Revision, expires: u64) -> Arc<Entry> {
        Arc::new(Entry { key: key.into(), value: Default::default(), revision, expires })
    }

    #[test]
    fn follows_writes() {
        let mut expiries = Expiries::default();
        let (first, second) = (entry("a", 1, 10), entry("a", 2, 20));
        let put = |entry: &Arc<Entry>, previous| Event {
            revision: entry.revision,
            key: entry.key.clone(),
            entry: Some(entry.clone()),
            previous,
        };
        expiries.follow(&put(&first, None));
        expiries.follow(&put(&second, Some(first)));
        expiries.follow(&put(&entry("b", 3, 0), None));
        assert_eq!(expiries.earliest(), Some(Duration::from_secs(20)));
        assert_eq!(expiries.due(Duration::from_millis(19_999), 9), Vec::<String>::new());
        assert_eq!(expiries.due(Duration::from_secs(20), 9), ["a"]);
        expiries.follow(&Event { revision: 4, key: "a".into(), entry: None, previous: Some(second) });
        assert_eq!(expiries.earliest(), None);
    }
}
