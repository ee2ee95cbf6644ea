//! The difference between two states of a table.

use std::collections::BTreeSet;

use network::nft::Hook;

use super::{Chain, Rule, Set, SetKind, Step, Table, Value, Values};

/// The key and the value of an element.
pub(super) type ElementRef<'a> = (&'a [u8], &'a Value);

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Deletes elements of a set.
    DeleteElements(&'a str, Vec<ElementRef<'a>>),
    /// Deletes the rules of a chain.
    FlushChain(&'a str),
    /// Deletes a chain without rules.
    DeleteChain(&'a str),
    /// Deletes a set.
    DeleteSet(&'a str),
    /// Creates an empty set.
    CreateSet(&'a str, SetKind),
    /// Creates a chain without rules.
    CreateChain(&'a str, Option<Hook>),
    /// Appends a rule to a chain.
    AddRule(&'a str, &'a Rule),
    /// Adds elements to a set.
    AddElements(&'a str, Vec<ElementRef<'a>>),
}

/// The changes that lead from one state to another, in an order that the kernel accepts in one transaction: nothing is
/// deleted while something refers to it, and everything exists before something refers to it.
pub fn diff<'a>(applied: &'a Table, desired: &'a Table) -> Vec<Change<'a>> {
    let sets = SetChanges::between(applied, desired);
    let is_rebuilt = |name: &str, chain: &Chain| {
        applied.chains.get(name) != Some(chain) || sets.recreated.iter().any(|set| mentions(chain, set))
    };
    let rebuilt: Vec<(&'a str, &'a Chain)> =
        named(&desired.chains).filter(|(name, chain)| is_rebuilt(name, chain)).collect();
    let removed = || named(&applied.chains).filter(|(name, _)| !desired.chains.contains_key(*name));

    let mut changes: Vec<Change<'a>> = sets.elements(applied, desired, Elements::Removed);
    let emptied = rebuilt.iter().filter(|(name, _)| applied.chains.contains_key(*name)).copied().chain(removed());
    changes.extend(emptied.map(|(name, _)| Change::FlushChain(name)));
    changes.extend(removed().map(|(name, _)| Change::DeleteChain(name)));
    changes.extend(sets.removed.iter().chain(&sets.recreated).map(|name| Change::DeleteSet(name)));
    changes.extend(
        sets.recreated
            .iter()
            .chain(&sets.added)
            .filter_map(|name| desired.sets.get(*name).map(|set| Change::CreateSet(name, set.kind))),
    );
    let added = rebuilt.iter().filter(|(name, _)| !applied.chains.contains_key(*name));
    changes.extend(added.map(|(name, chain)| Change::CreateChain(name, chain.hook)));
    let rules = rebuilt.iter().flat_map(|(name, chain)| chain.rules.iter().map(|rule| Change::AddRule(name, rule)));
    changes.extend(rules);
    changes.extend(sets.elements(applied, desired, Elements::Added));
    changes
}

/// The names of sets by their change.
struct SetChanges<'a> {
    removed: Vec<&'a str>,
    added: Vec<&'a str>,
    /// Sets of another type, and sets of intervals that have changed: the kernel checks new intervals for overlaps with
    /// those that are deleted in the same transaction.
    recreated: BTreeSet<&'a str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Elements {
    Removed,
    Added,
}

impl<'a> SetChanges<'a> {
    fn between(applied: &'a Table, desired: &'a Table) -> SetChanges<'a> {
        let is_recreated = |old: &Set, new: &Set| {
            old.kind != new.kind || new.kind.values == Values::Intervals && old.elements != new.elements
        };
        let is_kept = |name: &&str| desired.sets.contains_key(*name);
        let recreated = named(&desired.sets)
            .filter(|(name, new)| applied.sets.get(*name).is_some_and(|old| is_recreated(old, new)));
        SetChanges {
            removed: named(&applied.sets).map(|(name, _)| name).filter(|name| !is_kept(name)).collect(),
            added: named(&desired.sets)
                .map(|(name, _)| name)
                .filter(|name| !applied.sets.contains_key(*name))
                .collect(),
            recreated: recreated.map(|(name, _)| name).collect(),
        }
    }

    /// The elements that one state has and the other has not, or has with another value. The elements of maps are
    /// removed although the map is too, since the chains that they refer to may be deleted before it.
    fn elements(&self, applied: &'a Table, desired: &'a Table, which: Elements) -> Vec<Change<'a>> {
        let (these, others) = if which == Elements::Removed { (applied, desired) } else { (desired, applied) };
        let change = |(name, set): (&'a str, &'a Set)| {
            let is_whole = self.recreated.contains(name) || !others.sets.contains_key(name);
            if is_whole && which == Elements::Removed && set.kind.values != Values::Verdicts {
                return None;
            }
            let other = others.sets.get(name).filter(|_| !is_whole);
            let differs = |(key, value): &ElementRef<'a>| other.and_then(|set| set.elements.get(*key)) != Some(*value);
            let all = set.elements.iter().map(|(key, value)| (key.as_slice(), value));
            let found: Vec<ElementRef<'a>> = all.filter(differs).collect();
            let change = if which == Elements::Removed { Change::DeleteElements } else { Change::AddElements };
            (!found.is_empty()).then(|| change(name, found))
        };
        named(&these.sets).filter_map(change).collect()
    }
}

fn named<T>(map: &std::collections::BTreeMap<String, T>) -> impl Iterator<Item = (&str, &T)> {
    map.iter().map(|(name, value)| (name.as_str(), value))
}

fn mentions(chain: &Chain, set: &str) -> bool {
    let is_mention = |step: &Step| matches!(step, Step::In(_, name) | Step::Verdict(_, name) if name == set);
    chain.rules.iter().flatten().any(is_mention)
}

#[cfg(test)]
mod tests {
    use network::nft::{Kind, Register};

    use super::*;

    const HASH: SetKind = SetKind { key: &[Kind::Ipv4], values: Values::None };
    const MAP: SetKind = SetKind { key: &[Kind::Ipv4], values: Values::Verdicts };
    const RANGES: SetKind = SetKind { key: &[Kind::Ipv4], values: Values::Intervals };

    /// A small table: a base chain that looks up a map, whose elements lead to chains with one set each.
    fn table(pods: &[(&str, u8)], members: &[u8], until: u8) -> Table {
        let mut table = Table::default();
        let base = vec![vec![Step::Verdict(Register(0), "map".to_string())]];
        table.base_chain("base", Hook::filter(Hook::FORWARD, 0), base);
        let map = table.set("map", MAP);
        pods.iter().for_each(|(chain, key)| drop(map.elements.insert(vec![*key], Value::Goto(chain.to_string()))));
        for (chain, _) in pods {
            table.chain(chain, vec![vec![Step::In(Register(0), "members".to_string()), Step::Accept]]);
        }
        let set = table.set("members", HASH);
        members.iter().for_each(|key| set.add(vec![*key]));
        table.set("ranges", RANGES).elements.insert(vec![1], Value::Until(vec![until]));
        table.chain("block", vec![vec![Step::In(Register(0), "ranges".to_string()), Step::Drop]]);
        table
    }

    fn check(applied: &Table, desired: &Table, expected: &[&str]) {
        let changes = diff(applied, desired);
        let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn only_the_difference_is_applied() {
        let one = table(&[("a", 1)], &[1, 2], 9);
        check(&one, &one, &[]);
        check(&one, &table(&[("a", 1)], &[2, 3], 9), &["delete element members { 01 }", "add element members { 03 }"]);
        check(
            &one,
            &table(&[("b", 1)], &[1, 2], 9),
            &[
                "delete element map { 01 : goto a }",
                "flush chain a",
                "delete chain a",
                "create chain b",
                "add rule b @members accept",
                "add element map { 01 : goto b }",
            ],
        );
    }

    #[test]
    fn intervals_are_replaced_with_the_rules_that_use_them() {
        check(
            &table(&[("a", 1)], &[1], 9),
            &table(&[("a", 1)], &[1], 7),
            &[
                "flush chain block",
                "delete set ranges",
                "create set ranges",
                "add rule block @ranges drop",
                "add element ranges { 01-07 }",
            ],
        );
    }

    #[test]
    fn a_table_is_built_from_nothing_and_emptied() {
        let one = table(&[("a", 1)], &[1], 9);
        check(
            &Table::default(),
            &one,
            &[
                "create set map",
                "create set members",
                "create set ranges",
                "create chain a",
                "create chain base",
                "create chain block",
                "add rule a @members accept",
                "add rule base @map verdict",
                "add rule block @ranges drop",
                "add element map { 01 : goto a }",
                "add element members { 01 }",
                "add element ranges { 01-09 }",
            ],
        );
        check(
            &one,
            &Table::default(),
            &[
                "delete element map { 01 : goto a }",
                "flush chain a",
                "flush chain base",
                "flush chain block",
                "delete chain a",
                "delete chain base",
                "delete chain block",
                "delete set map",
                "delete set members",
                "delete set ranges",
            ],
        );
    }
}
