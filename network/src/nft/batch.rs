//! Transactions.

use super::expression::Expression;
use super::set::{Element, Set, put_elements, put_set};
use super::{Family, Nft, SUBSYSTEM, kind, message};
use crate::netlink::Error;
use crate::netlink::message::Message;
use crate::netlink::socket::{APPEND, CREATE, EXCL, REQUEST};

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const ACCEPT: u32 = 1;
/// The type of a list's entries.
pub(super) const LIST_ELEMENT: u16 = 1;

/// The hook of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `filter`, `nat` or `route`.
    pub kind: &'static str,
    pub number: u32,
    pub priority: i32,
}

impl Hook {
    /// Before routing.
    pub const PREROUTING: u32 = 0;
    /// For this machine.
    pub const INPUT: u32 = 1;
    /// Forwarded to other machines.
    pub const FORWARD: u32 = 2;
    /// From this machine.
    pub const OUTPUT: u32 = 3;
    /// After routing.
    pub const POSTROUTING: u32 = 4;

    /// A hook that filters.
    pub const fn filter(number: u32, priority: i32) -> Hook {
        Hook { kind: "filter", number, priority }
    }

    /// A hook for network address translation.
    pub const fn nat(number: u32, priority: i32) -> Hook {
        Hook { kind: "nat", number, priority }
    }
}

/// A transaction: changes of one table, in this order.
pub struct Batch<'a> {
    family: Family,
    table: &'a str,
    messages: Vec<Message>,
}

impl<'a> Batch<'a> {
    /// The elements of a message. More would not fit the 16-bit length of a nested attribute.
    pub const ELEMENTS_A_MESSAGE: usize = 200;

    /// An empty transaction for a table.
    pub fn new(family: Family, table: &'a str) -> Batch<'a> {
        Batch { family, table, messages: Vec::new() }
    }

    /// Creates the table, which must not exist: then concurrent callers cannot both create it.
    pub fn create_table(&mut self) {
        let mut message = message(kind::NEW_TABLE, CREATE | EXCL, self.family);
        message.put_text(TABLE_NAME, self.table);
        self.messages.push(message);
    }

    /// Creates the table if it does not exist.
    pub fn ensure_table(&mut self) {
        let mut message = message(kind::NEW_TABLE, CREATE, self.family);
        message.put_text(TABLE_NAME, self.table);
        self.messages.push(message);
    }

    /// Deletes the table with all its contents.
    pub fn delete_table(&mut self) {
        let mut message = message(kind::DELETE_TABLE, 0, self.family);
        message.put_text(TABLE_NAME, self.table);
        self.messages.push(message);
    }

    /// Creates a chain, which must not exist.
    pub fn create_chain(&mut self, name: &str, hook: Option<Hook>) {
        let mut message = message(kind::NEW_CHAIN, CREATE | EXCL, self.family);
        message.put_text(CHAIN_TABLE, self.table);
        message.put_text(CHAIN_NAME, name);
        if let Some(hook) = hook {
            message.nest(CHAIN_HOOK, |nest| {
                nest.put_be32(HOOK_NUMBER, hook.number);
                nest.put_be32(HOOK_PRIORITY, hook.priority.cast_unsigned());
            });
            message.put_be32(CHAIN_POLICY, ACCEPT);
            message.put_text(CHAIN_TYPE, hook.kind);
        }
        self.messages.push(message);
    }

    /// Fails with EBUSY while a rule or an element jumps to the chain.
    pub fn delete_chain(&mut self, name: &str) {
        let mut message = message(kind::DELETE_CHAIN, 0, self.family);
        message.put_text(CHAIN_TABLE, self.table);
        message.put_text(CHAIN_NAME, name);
        self.messages.push(message);
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, chain: &str) {
        let mut message = message(kind::DELETE_RULE, 0, self.family);
        message.put_text(RULE_TABLE, self.table);
        message.put_text(RULE_CHAIN, chain);
        self.messages.push(message);
    }

    /// Appends a rule to a chain.
    pub fn rule(&mut self, chain: &str, expressions: &[Expression<'_>]) {
        self.put_rule(CREATE | APPEND, chain, expressions);
    }

    /// Adds a rule before all others of a chain.
    pub fn insert_rule(&mut self, chain: &str, expressions: &[Expression<'_>]) {
        self.put_rule(CREATE, chain, expressions);
    }

    fn put_rule(&mut self, flags: u16, chain: &str, expressions: &[Expression<'_>]) {
        let mut message = message(kind::NEW_RULE, flags, self.family);
        message.put_text(RULE_TABLE, self.table);
        message.put_text(RULE_CHAIN, chain);
        message.nest(RULE_EXPRESSIONS, |list| expressions.iter().for_each(|expression| expression.put(list)));
        self.messages.push(message);
    }

    /// Creates a set or a map.
    pub fn create_set(&mut self, set: &Set<'_>) {
        // The number identifies the set within the transaction.
        let number = self.messages.len() as u32 + 1;
        let mut message = message(kind::NEW_SET, CREATE | EXCL, self.family);
        message.put_text(SET_TABLE, self.table);
        message.put_text(SET_NAME, set.name);
        put_set(&mut message, set, number);
        self.messages.push(message);
    }

    /// Deletes a set or a map.
    pub fn delete_set(&mut self, name: &str) {
        let mut message = message(kind::DELETE_SET, 0, self.family);
        message.put_text(SET_TABLE, self.table);
        message.put_text(SET_NAME, name);
        self.messages.push(message);
    }

    /// Adds elements, which may exist already; fails with EEXIST if one exists with other data.
    pub fn add_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(kind::NEW_ELEMENT, CREATE, set, elements);
    }

    /// Adds elements, which must not exist.
    pub fn create_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(kind::NEW_ELEMENT, CREATE | EXCL, set, elements);
    }

    /// Fails with ENOENT if an element does not exist.
    pub fn delete_elements(&mut self, set: &str, elements: &[Element]) {
        self.elements(kind::DELETE_ELEMENT, 0, set, elements);
    }

    fn elements(&mut self, kind: u16, flags: u16, set: &str, elements: &[Element]) {
        for some in elements.chunks(Batch::ELEMENTS_A_MESSAGE) {
            let mut message = message(kind, flags, self.family);
            put_elements(&mut message, self.table, set, some);
            self.messages.push(message);
        }
    }

    /// Appends the changes of another table, so that both are one transaction.
    pub fn append(&mut self, other: Batch<'_>) {
        self.messages.extend(other.messages);
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Applies the whole transaction or nothing. Returns the first error.
    pub fn commit(self, nft: &mut Nft, what: &str) -> Result<(), Error> {
        let edge = |kind| Message::new(kind, REQUEST, &[0, 0, SUBSYSTEM.to_be_bytes()[0], SUBSYSTEM.to_be_bytes()[1]]);
        let mut messages = vec![edge(BATCH_BEGIN)];
        messages.extend(self.messages.into_iter().map(|mut message| {
            message.add_flags(REQUEST);
            message
        }));
        messages.push(edge(BATCH_END));
        let failures = nft.0.batch(messages).map_err(|cause| Error::new(what, cause))?;
        match failures.into_iter().next() {
            Some((_, cause)) => Err(Error::new(what, cause)),
            None => Ok(()),
        }
    }
}
