//! nftables over netlink. Changes are sent as one transaction, which the kernel applies completely or not at all.
//!
//! Nothing here depends on the purpose of a table. The owner of a table builds a [`Batch`] and commits it.

mod batch;
mod expression;
mod monitor;
mod nets;
mod pool;
mod read;
mod set;

pub use batch::{Batch, Hook};
pub use expression::{Expression, Field, Register, STATE_INVALID, STATE_NEW, STATE_UNTRACKED, TYPE_LOCAL};
pub use monitor::{Monitor, TableEvent};
pub use nets::Side;
pub use pool::Pool;
pub use set::{Data, Element, Kind, MapType, Set, comment};

/// The address family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    Ipv4 = 2,
    Bridge = 7,
    Ipv6 = 10,
}

/// The subsystem number of nftables in netfilter.
const SUBSYSTEM: u16 = 10;

/// Message types, without the subsystem.
mod kind {
    pub(super) const NEW_TABLE: u16 = 0;
    pub(super) const GET_TABLE: u16 = 1;
    pub(super) const DELETE_TABLE: u16 = 2;
    pub(super) const NEW_CHAIN: u16 = 3;
    pub(super) const GET_CHAIN: u16 = 4;
    pub(super) const DELETE_CHAIN: u16 = 5;
    pub(super) const NEW_RULE: u16 = 6;
    pub(super) const DELETE_RULE: u16 = 8;
    pub(super) const NEW_SET: u16 = 9;
    pub(super) const DELETE_SET: u16 = 11;
    pub(super) const NEW_ELEMENT: u16 = 12;
    pub(super) const GET_ELEMENT: u16 = 13;
    pub(super) const DELETE_ELEMENT: u16 = 14;
    pub(super) const NEW_GENERATION: u16 = 15;
}

fn message(kind: u16, flags: u16, family: Family) -> crate::netlink::message::Message {
    crate::netlink::message::Message::new(SUBSYSTEM << 8 | kind, flags, &[family as u8, 0, 0, 0])
}

/// A netfilter socket for transactions and queries, in the namespace in which it was opened.
#[derive(Debug)]
pub struct Nft(crate::netlink::Socket);

impl Nft {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> Result<Nft, crate::netlink::Error> {
        crate::netlink::Socket::open(Some(rustix::net::netlink::NETFILTER)).map(Nft)
    }

    /// The number by which the kernel names this socket as the source of changes.
    pub fn port(&self) -> Result<u32, crate::netlink::Error> {
        self.0.port()
    }
}
