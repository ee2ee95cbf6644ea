//! Which port owns a destination or another element. Two Services may claim the same external address and port: the older
//! one gets it, and the other one when the first releases it. Elements that ports share, such as a cluster IP, exist while
//! one needs them.

use std::cmp::Ordering;
use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use api::Str;

use network::nft::{Data, Element};

use super::elements::{Entry, SetElement, Target, Value, elements_of};
use super::layout::Class;
use crate::model::PortName;

/// A port. The least one gets an element that several claim.
pub(super) type Owner = Arc<(Str, PortName)>;

type Key = (Target, Box<[u8]>);

/// The claims of all ports, and the elements that have changed since the last transaction.
#[derive(Default)]
pub(super) struct Claims {
    claims: HashMap<Key, Owners>,
    /// Claims that may have changed, with their value before; None if there was none.
    touched: BTreeMap<Key, Option<Value>>,
}

/// The owners of an element. Nearly all elements have one, so that a list for each of them would waste most memory.
struct Owners {
    /// The least one.
    first: (Owner, Value),
    /// All others, in order.
    others: Vec<(Owner, Value)>,
}

impl Owners {
    fn insert(&mut self, owner: &Owner, value: Value) {
        match owner.cmp(&self.first.0) {
            Ordering::Equal => self.first.1 = value,
            Ordering::Less => {
                let first = std::mem::replace(&mut self.first, (owner.clone(), value));
                self.others.insert(0, first);
            }
            Ordering::Greater => match self.others.binary_search_by(|(other, _)| other.cmp(owner)) {
                Ok(at) => self.others[at].1 = value,
                Err(at) => self.others.insert(at, (owner.clone(), value)),
            },
        }
    }

    /// Returns whether there is another owner.
    fn remove(&mut self, owner: &Owner) -> bool {
        if self.first.0 != *owner {
            self.others.retain(|(other, _)| other != owner);
            return true;
        }
        if self.others.is_empty() {
            return false;
        }
        self.first = self.others.remove(0);
        true
    }
}

/// Claims that have changed, with their values before and after.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference(Vec<(Key, Option<Value>, Option<Value>)>);

impl Difference {
    /// Elements that are deleted or replaced, without data. They are computed when they are needed: there may be many.
    pub(super) fn deletions(&self) -> impl Iterator<Item = SetElement> {
        let changes =
            self.0.iter().flat_map(|(key, before, after)| without(elements(key, before), elements(key, after)));
        changes.map(|(set, element)| (set, Element { data: Data::None, ..element }))
    }

    /// Elements that are added, or that replace others.
    pub(super) fn additions(&self) -> impl Iterator<Item = SetElement> {
        self.0.iter().flat_map(|(key, before, after)| without(elements(key, after), elements(key, before)))
    }

    /// The classes that destinations need.
    pub(super) fn classes(&self) -> impl Iterator<Item = Class> {
        self.0.iter().filter_map(|((target, _), _, after)| match (target, after) {
            (Target::Forward(frontend), Some(Value::Endpoints(endpoints))) => {
                Some(Class::of(*frontend, endpoints.len()))
            }
            _ => None,
        })
    }
}

fn elements((target, key): &Key, value: &Option<Value>) -> Vec<SetElement> {
    value.as_ref().map(|value| elements_of(*target, key, value)).unwrap_or_default()
}

/// The elements that are not in another list too. Both lists have the same order, so that an element is one of the first.
fn without(mut elements: Vec<SetElement>, others: Vec<SetElement>) -> Vec<SetElement> {
    let mut others = VecDeque::from(others);
    elements.retain(|element| match others.iter().position(|other| other == element) {
        Some(at) => others.remove(at).is_none(),
        None => true,
    });
    elements
}

impl Claims {
    /// Replaces the claims of a port.
    pub(super) fn change(&mut self, owner: &Owner, old: &[Entry], new: &[Entry]) {
        let mut released: HashMap<(Target, &[u8]), &Entry> =
            old.iter().map(|entry| ((entry.target, &*entry.key), entry)).collect();
        let mut claimed = Vec::new();
        for entry in new {
            match released.remove(&(entry.target, &*entry.key)) {
                Some(same) if same.value == entry.value => {}
                _ => claimed.push(entry),
            }
        }
        released.into_values().for_each(|entry| self.release(owner, entry));
        claimed.into_iter().for_each(|entry| self.claim(owner, entry));
    }

    fn claim(&mut self, owner: &Owner, entry: &Entry) {
        let (key, value) = ((entry.target, entry.key.clone()), entry.value.clone());
        self.mark_changed(&key);
        match self.claims.entry(key) {
            Slot::Occupied(mut owners) => owners.get_mut().insert(owner, value),
            Slot::Vacant(slot) => drop(slot.insert(Owners { first: (owner.clone(), value), others: Vec::new() })),
        }
    }

    fn release(&mut self, owner: &Owner, entry: &Entry) {
        let key = (entry.target, entry.key.clone());
        self.mark_changed(&key);
        if let Slot::Occupied(mut owners) = self.claims.entry(key)
            && !owners.get_mut().remove(owner)
        {
            owners.remove();
        }
    }

    fn mark_changed(&mut self, key: &Key) {
        if !self.touched.contains_key(key) {
            let before = self.effective(key).cloned();
            self.touched.insert(key.clone(), before);
        }
    }

    fn effective(&self, key: &Key) -> Option<&Value> {
        self.claims.get(key).map(|owners| &owners.first.1)
    }

    /// The changes since the last call.
    pub(super) fn finish(&mut self) -> Difference {
        let touched = std::mem::take(&mut self.touched).into_iter();
        let changes = touched.map(|(key, before)| {
            let after = self.effective(&key).cloned();
            (key, before, after)
        });
        Difference(changes.filter(|(_, before, after)| before != after).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::layout::{Frontend, SetId};
    use super::*;
    use crate::model::{Family, Protocol};

    fn forward(key: u8, endpoints: &[u16]) -> Entry {
        let endpoints: Vec<SocketAddr> =
            endpoints.iter().map(|port| SocketAddr::from(([10, 0, 0, 1], *port))).collect();
        let value = Value::Endpoints(endpoints.into());
        Entry { target: Target::Forward(Frontend::External), key: Box::new([key]), value }
    }

    fn owner(created: &str) -> Owner {
        let port = "".into();
        let name = PortName { service: "a/b".into(), port, protocol: Protocol::Tcp, family: Family::V4 };
        Arc::new((created.into(), name))
    }

    /// Deletions and additions: the class of a destination, or the number and the port of an endpoint.
    fn operations(claims: &mut Claims) -> [Vec<String>; 2] {
        let difference = claims.finish();
        let text = |(set, element): SetElement| match (set, element.data) {
            (SetId::Class(class), _) => format!("{} up to {}", element.key[0], class.size()),
            (_, Data::Value(address)) => {
                format!("{} #{} -> {}", element.key[0], element.key[1], u16::from_be_bytes([address[4], address[5]]))
            }
            _ => format!("{} #{}", element.key[0], element.key[1]),
        };
        [difference.deletions().map(text).collect(), difference.additions().map(text).collect()]
    }

    #[track_caller]
    fn check(claims: &mut Claims, deletions: &[&str], additions: &[&str]) {
        let [deleted, added] = operations(claims);
        assert_eq!((deleted, added), (texts(deletions), texts(additions)));
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn oldest_claim_wins_until_it_is_released() {
        let (old, new) = (owner("2026-01-01T00:00:00Z"), owner("2026-01-02T00:00:00Z"));
        let mut claims = Claims::default();
        claims.change(&new, &[], &[forward(7, &[1, 2]), forward(8, &[1])]);
        check(&mut claims, &[], &["7 up to 2", "7 #0 -> 1", "7 #1 -> 2", "8 up to 1", "8 #0 -> 1"]);
        // None of the endpoints of the newer one are left.
        claims.change(&old, &[], &[forward(7, &[3])]);
        check(&mut claims, &["7 up to 2", "7 #0", "7 #1"], &["7 up to 1", "7 #0 -> 3"]);
        claims.change(&old, &[forward(7, &[3])], &[]);
        check(&mut claims, &["7 up to 1", "7 #0"], &["7 up to 2", "7 #0 -> 1", "7 #1 -> 2"]);
        claims.change(&new, &[forward(7, &[1, 2]), forward(8, &[1])], &[forward(8, &[1])]);
        check(&mut claims, &["7 up to 2", "7 #0", "7 #1"], &[]);
    }

    #[test]
    fn a_change_costs_the_changed_endpoints() {
        let web = owner("");
        let mut claims = Claims::default();
        claims.change(&web, &[], &[forward(7, &[1, 2, 3])]);
        claims.finish();
        claims.change(&web, &[forward(7, &[1, 2, 3])], &[forward(7, &[1, 4, 3])]);
        check(&mut claims, &["7 #1"], &["7 #1 -> 4"]);
        claims.change(&web, &[forward(7, &[1, 4, 3])], &[forward(7, &[1, 4, 3, 5])]);
        check(&mut claims, &[], &["7 #3 -> 5"]);
        claims.change(&web, &[forward(7, &[1, 4, 3, 5])], &[forward(7, &[1, 4])]);
        check(&mut claims, &["7 up to 4", "7 #2", "7 #3"], &["7 up to 2"]);
        // A change and its reversal within one transaction are nothing.
        claims.change(&web, &[forward(7, &[1, 4])], &[]);
        claims.change(&web, &[], &[forward(7, &[1, 4])]);
        assert_eq!(claims.finish(), Difference::default());
    }

    #[test]
    fn classes_are_powers_of_two() {
        let sizes = [0, 1, 2, 3, 5, 8, 9, 1000, 131_072, 1_000_000];
        let sizes = sizes.map(|count| Class::of(Frontend::Services, count).size());
        assert_eq!(sizes, [1, 1, 2, 4, 8, 8, 16, 1024, 131_072, 131_072]);
        assert_eq!(Class::of(Frontend::NodePortsLocal, 9).chain(), "pick-node-ports-local-16");
    }
}
