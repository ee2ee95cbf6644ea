//! An nftables table as plain data: sets, maps, and chains with their rules. It does not know what they are for.

mod diff;
mod text;

use std::collections::BTreeMap;

use network::nft::{Batch, Data, Element, Expression, Field, Hook, Kind, MapType, Register, Set as NftSet};

pub use diff::{Change, diff};

/// The contents of a table. An empty one means that the table does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Sets and maps, by name.
    pub sets: BTreeMap<String, Set>,
    /// Chains, by name.
    pub chains: BTreeMap<String, Chain>,
}

/// A set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its type.
    pub kind: SetKind,
    /// Its elements, by key.
    pub elements: BTreeMap<Vec<u8>, Value>,
}

/// The type of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetKind {
    /// The types of the key's parts.
    pub key: &'static [Kind],
    /// The values of the elements, besides their keys.
    pub values: Values,
}

/// The kind of values that the elements of a set have besides their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Nothing: [`Value::Member`].
    None,
    /// A verdict: [`Value::Goto`].
    Verdicts,
    /// The end of an interval: [`Value::Until`]. Intervals must neither overlap nor adjoin.
    Intervals,
}

/// The value of an element, besides its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Member,
    /// A chain, from which packets do not return.
    Goto(String),
    /// The last key of the interval.
    Until(Vec<u8>),
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The hook of a base chain.
    pub hook: Option<Hook>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// A rule: each step runs if the one before matches.
pub type Rule = Vec<Step>;

/// A step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Loads a field.
    Load(Field, Register),
    /// Matches a value.
    Equal(Register, Vec<u8>),
    /// Matches from the first value to the last.
    Between(Register, Vec<u8>, Vec<u8>),
    /// Matches if any bit of the mask is set; see [`Step::any_bit`].
    AnyBit(Register, [u8; 4]),
    /// Matches if the value is in a set.
    In(Register, String),
    /// Applies the verdict that a map has for the value.
    Verdict(Register, String),
    /// Continues with a chain and returns.
    Jump(String),
    /// Continues with a chain.
    Goto(String),
    /// Accepts the packet in this base chain.
    Accept,
    /// Drops the packet.
    Drop,
}

impl Table {
    /// Whether there is nothing, so that the table need not exist.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.chains.is_empty()
    }

    /// The set of this name, which is created if it does not exist.
    pub fn set(&mut self, name: &str, kind: SetKind) -> &mut Set {
        self.sets.entry(name.to_string()).or_insert_with(|| Set { kind, elements: BTreeMap::new() })
    }

    /// Adds a chain without a hook.
    pub fn chain(&mut self, name: &str, rules: Vec<Rule>) {
        self.chains.insert(name.to_string(), Chain { hook: None, rules });
    }

    /// Adds a base chain.
    pub fn base_chain(&mut self, name: &str, hook: Hook, rules: Vec<Rule>) {
        self.chains.insert(name.to_string(), Chain { hook: Some(hook), rules });
    }
}

impl Set {
    /// Adds an element without a value.
    pub fn add(&mut self, key: Vec<u8>) {
        self.elements.insert(key, Value::Member);
    }
}

impl Change<'_> {
    /// Adds the change to a transaction.
    pub fn put(&self, batch: &mut Batch<'_>) {
        match self {
            Change::DeleteElements(set, elements) => {
                // A deletion needs keys only.
                batch.delete_elements(set, &elements.iter().map(|(key, _)| member(key)).collect::<Vec<_>>());
            }
            Change::FlushChain(chain) => batch.flush_chain(chain),
            Change::DeleteChain(chain) => batch.delete_chain(chain),
            Change::DeleteSet(set) => batch.delete_set(set),
            Change::CreateSet(name, kind) => batch.create_set(&nft_set(name, *kind)),
            Change::CreateChain(name, hook) => batch.create_chain(name, *hook),
            Change::AddRule(chain, rule) => put_rule(batch, chain, rule),
            Change::AddElements(set, elements) => {
                let elements: Vec<Element> =
                    elements.iter().flat_map(|(key, value)| nft_elements(key, value)).collect();
                batch.create_elements(set, &elements);
            }
        }
    }
}

fn nft_set(name: &str, kind: SetKind) -> NftSet<'_> {
    let set = NftSet::of(name, kind.key);
    match kind.values {
        Values::None => set,
        Values::Verdicts => NftSet { data: Some(MapType::Verdict), ..set },
        Values::Intervals => NftSet { interval: true, ..set },
    }
}

fn member(key: &[u8]) -> Element {
    Element::new(key.to_vec(), Data::None, "")
}

/// The kernel has an interval as two elements: its first key, and the first key after it if there is one.
fn nft_elements(key: &[u8], value: &Value) -> Vec<Element> {
    match value {
        Value::Member => vec![member(key)],
        Value::Goto(chain) => vec![Element::new(key.to_vec(), Data::Goto(chain.clone()), "")],
        Value::Until(last) => {
            let end = successor(last).map(|end| Element { interval_end: true, ..member(&end) });
            [member(key)].into_iter().chain(end).collect()
        }
    }
}

/// The next key; None after the last one.
fn successor(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

fn put_rule(batch: &mut Batch<'_>, chain: &str, rule: &[Step]) {
    batch.rule(chain, &rule.iter().flat_map(Step::expressions).collect::<Vec<_>>());
}

impl Step {
    /// Matches if any of the bits is set, which are in host byte order in the kernel's registers.
    pub fn any_bit(register: Register, bits: u32) -> Step {
        Step::AnyBit(register, bits.to_ne_bytes())
    }

    fn expressions(&self) -> Vec<Expression<'_>> {
        let expression = match self {
            Step::Load(field, register) => Expression::Load(*field, *register),
            Step::Equal(register, value) => Expression::Equal(*register, value),
            Step::Between(register, first, last) => Expression::Between(*register, first, last),
            Step::AnyBit(register, mask) => {
                return vec![Expression::Mask(*register, mask), Expression::NotEqual(*register, &[0; 4])];
            }
            Step::In(register, set) => Expression::In(*register, set),
            Step::Verdict(register, map) => Expression::Verdict(*register, map),
            Step::Jump(chain) => Expression::Jump(chain),
            Step::Goto(chain) => Expression::Goto(chain),
            Step::Accept => Expression::Accept,
            Step::Drop => Expression::Drop,
        };
        vec![expression]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_end_after_their_last_key() {
        for (last, end) in [
            (vec![10, 0, 0, 255], Some(vec![10, 0, 1, 0])),
            (vec![10, 0, 0, 7], Some(vec![10, 0, 0, 8])),
            (vec![255, 255, 255, 255], None),
        ] {
            let elements = nft_elements(&[10, 0, 0, 0], &Value::Until(last));
            assert_eq!(elements.get(1).map(|element| element.key.clone()), end);
            assert!(elements.iter().skip(1).all(|element| element.interval_end));
        }
    }
}
