//! Which port owns an element. Two Services may claim the same external address and port: the first one gets the element,
//! and the next one when the first releases it. Elements that ports share, such as a cluster IP, exist while one needs them.

use std::collections::{BTreeMap, HashMap};

use super::elements::{Entry, Value};
use super::layout::SetId;

/// The number of a port.
pub(super) type Owner = u32;

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
    pub(super) fn change(&mut self, owner: Owner, old: &[Entry], new: &[Entry]) {
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

    fn claim(&mut self, owner: Owner, entry: &Entry) {
        let (key, value) = ((entry.set, entry.key.clone()), entry.value.clone());
        self.touch(&key);
        let owners = self.claims.entry(key).or_default();
        match owners.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, old)) => *old = value,
            None => owners.push((owner, value)),
        }
    }

    fn release(&mut self, owner: Owner, entry: &Entry) {
        let key = (entry.set, entry.key.clone());
        self.touch(&key);
        if let Some(owners) = self.claims.get_mut(&key) {
            owners.retain(|(other, _)| *other != owner);
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

    fn entry(key: u8, value: u8) -> Entry {
        Entry { set: SetId::Endpoints(Frontend::External), key: Box::new([key]), value: Value::Data(Box::new([value])) }
    }

    fn counts(claims: &mut Claims) -> (Vec<Entry>, Vec<Entry>) {
        let Operations { deletions, additions } = claims.finish();
        (deletions.into_values().flatten().collect(), additions.into_values().flatten().collect())
    }

    #[test]
    fn first_claim_wins_until_it_is_released() {
        let mut claims = Claims::default();
        claims.change(1, &[], &[entry(7, 1)]);
        assert_eq!(counts(&mut claims), (vec![], vec![entry(7, 1)]));
        claims.change(2, &[], &[entry(7, 2), entry(8, 2)]);
        assert_eq!(counts(&mut claims), (vec![], vec![entry(8, 2)]));
        claims.change(1, &[entry(7, 1)], &[]);
        assert_eq!(counts(&mut claims), (vec![entry(7, 1)], vec![entry(7, 2)]));
        claims.change(2, &[entry(7, 2), entry(8, 2)], &[entry(8, 2)]);
        assert_eq!(counts(&mut claims), (vec![entry(7, 2)], vec![]));
    }

    #[test]
    fn only_differences_are_applied() {
        let mut claims = Claims::default();
        claims.change(1, &[], &[entry(1, 1), entry(2, 2)]);
        claims.finish();
        claims.change(1, &[entry(1, 1), entry(2, 2)], &[entry(1, 1), entry(2, 3)]);
        assert_eq!(counts(&mut claims), (vec![entry(2, 2)], vec![entry(2, 3)]));
        // A change that is undone within one transaction is none.
        claims.change(1, &[entry(2, 3)], &[]);
        claims.change(1, &[], &[entry(2, 3)]);
        assert_eq!(counts(&mut claims), (vec![], vec![]));
    }
}
