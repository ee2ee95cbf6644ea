//! Which port owns an element. Two Services may claim the same external address and port: the older one gets the element,
//! and the other one when the first releases it. Elements that ports share, such as a cluster IP, exist while one needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Str;

use super::elements::{Entry, Value};
use super::layout::SetId;
use crate::model::PortName;

/// A port. The least one gets an element that several claim.
pub(super) type Owner = Arc<(Str, PortName)>;

type Key = (SetId, Box<[u8]>);

/// The claims of all ports, and the elements that have changed since the last transaction.
#[derive(Default)]
pub(super) struct Claims {
    claims: HashMap<Key, Vec<(Owner, Value)>>,
    /// Elements that may have changed, with their value before; None if they did not exist.
    touched: BTreeMap<Key, Option<Value>>,
}

/// Changes of elements, grouped by set. Deletions come first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Operations {
    pub(super) deletions: BTreeMap<SetId, Vec<Entry>>,
    pub(super) additions: BTreeMap<SetId, Vec<Entry>>,
}

impl Claims {
    /// Replaces the claims of a port.
    pub(super) fn change(&mut self, owner: &Owner, old: &[Entry], new: &[Entry]) {
        let mut released: HashMap<(SetId, &[u8]), &Entry> =
            old.iter().map(|entry| ((entry.set, &*entry.key), entry)).collect();
        let mut claimed = Vec::new();
        for entry in new {
            match released.remove(&(entry.set, &*entry.key)) {
                Some(same) if same.value == entry.value => {}
                _ => claimed.push(entry),
            }
        }
        released.into_values().for_each(|entry| self.release(owner, entry));
        claimed.into_iter().for_each(|entry| self.claim(owner, entry));
    }

    fn claim(&mut self, owner: &Owner, entry: &Entry) {
        let (key, value) = ((entry.set, entry.key.clone()), entry.value.clone());
        self.touch(&key);
        let owners = self.claims.entry(key).or_default();
        match owners.binary_search_by(|(other, _)| other.cmp(owner)) {
            Ok(at) => owners[at].1 = value,
            Err(at) => owners.insert(at, (owner.clone(), value)),
        }
    }

    fn release(&mut self, owner: &Owner, entry: &Entry) {
        let key = (entry.set, entry.key.clone());
        self.touch(&key);
        if let Some(owners) = self.claims.get_mut(&key) {
            owners.retain(|(other, _)| other != owner);
            if owners.is_empty() {
                self.claims.remove(&key);
            }
        }
    }

    fn touch(&mut self, key: &Key) {
        if !self.touched.contains_key(key) {
            let before = self.effective(key).cloned();
            self.touched.insert(key.clone(), before);
        }
    }

    fn effective(&self, key: &Key) -> Option<&Value> {
        self.claims.get(key).and_then(|owners| owners.first()).map(|(_, value)| value)
    }

    /// The changes since the last call.
    pub(super) fn finish(&mut self) -> Operations {
        let mut operations = Operations::default();
        for (key, before) in std::mem::take(&mut self.touched) {
            let after = self.effective(&key).cloned();
            if before == after {
                continue;
            }
            let (set, key) = key;
            if let Some(value) = before {
                operations.deletions.entry(set).or_default().push(Entry { set, key: key.clone(), value });
            }
            if let Some(value) = after {
                operations.additions.entry(set).or_default().push(Entry { set, key, value });
            }
        }
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Frontend;
    use super::*;
    use crate::model::{Family, Protocol};

    fn entry(key: u8, value: u8) -> Entry {
        let value = Value::Data(Box::new([value]));
        Entry { set: SetId::Endpoints(Frontend::External), key: Box::new([key]), value }
    }

    fn owner(created: &str) -> Owner {
        let port = "".into();
        let name = PortName { service: "a/b".into(), port, protocol: Protocol::Tcp, family: Family::V4 };
        Arc::new((created.into(), name))
    }

    fn operations(claims: &mut Claims) -> (Vec<Entry>, Vec<Entry>) {
        let Operations { deletions, additions } = claims.finish();
        (deletions.into_values().flatten().collect(), additions.into_values().flatten().collect())
    }

    #[test]
    fn oldest_claim_wins_until_it_is_released() {
        let (old, new) = (owner("2026-01-01T00:00:00Z"), owner("2026-01-02T00:00:00Z"));
        let mut claims = Claims::default();
        claims.change(&new, &[], &[entry(7, 2), entry(8, 2)]);
        assert_eq!(operations(&mut claims), (vec![], vec![entry(7, 2), entry(8, 2)]));
        claims.change(&old, &[], &[entry(7, 1)]);
        assert_eq!(operations(&mut claims), (vec![entry(7, 2)], vec![entry(7, 1)]));
        claims.change(&old, &[entry(7, 1)], &[]);
        assert_eq!(operations(&mut claims), (vec![entry(7, 1)], vec![entry(7, 2)]));
        claims.change(&new, &[entry(7, 2), entry(8, 2)], &[entry(8, 2)]);
        assert_eq!(operations(&mut claims), (vec![entry(7, 2)], vec![]));
    }

    #[test]
    fn only_differences_are_applied() {
        let owner = owner("");
        let mut claims = Claims::default();
        claims.change(&owner, &[], &[entry(1, 1), entry(2, 2)]);
        claims.finish();
        claims.change(&owner, &[entry(1, 1), entry(2, 2)], &[entry(1, 1), entry(2, 3)]);
        assert_eq!(operations(&mut claims), (vec![entry(2, 2)], vec![entry(2, 3)]));
        // A change that is undone within one transaction is none.
        claims.change(&owner, &[entry(2, 3)], &[]);
        claims.change(&owner, &[], &[entry(2, 3)]);
        assert_eq!(operations(&mut claims), (vec![], vec![]));
    }
}
