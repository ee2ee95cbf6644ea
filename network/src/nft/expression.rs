//! Expressions of rules: loads from a packet, comparisons, and verdicts.

use super::batch::LIST_ELEMENT;
use std::time::Duration;

use super::set::{DATA_VALUE, DATA_VERDICT, VERDICT_CODE, put_goto, put_jump};
use crate::netlink::message::Message;

/// A register of four bytes. Longer values occupy the following registers too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    const COUNT: u8 = 16;
    const FIRST: u32 = 8;

    fn number(self) -> u32 {
        debug_assert!(self.0 < Register::COUNT);
        Register::FIRST + u32::from(self.0)
    }
}

/// A field that can be loaded from a packet or its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The IP version: one byte, 2 for IPv4 or 10 for IPv6.
    NetworkProtocol,
    TransportProtocol,
    Mark,
    Ipv4Source,
    Ipv4Destination,
    Ipv6Source,
    Ipv6Destination,
    /// Of TCP, UDP and SCTP alike.
    DestinationPort,
    /// The type of the route to the destination, such as "local".
    DestinationType,
    /// The type of the route to the source.
    SourceType,
    /// The name of the input device, padded to 16 bytes; empty for packets of this machine.
    InputName,
    /// The name of the output device, padded to 16 bytes.
    OutputName,
    /// The protocol of the frame, two bytes.
    EtherType,
    /// The hardware address of the frame's sender.
    EtherSource,
    /// The hardware address of the frame's receiver.
    EtherDestination,
    /// The hardware address that an ARP packet announces.
    ArpSenderMac,
    /// The address that an ARP packet announces.
    ArpSenderIpv4,
    /// The type of an ICMP or ICMPv6 packet.
    IcmpType,
    /// The address that a neighbour advertisement announces.
    NeighbourTarget,
    /// The state bits of the connection; see [`STATE_NEW`].
    ConnectionState,
    /// The status bits of the connection.
    ConnectionStatus,
    /// The destination port of the connection's first packet.
    OriginalPort,
    /// The protocol of the connection; for an ICMP error, of the connection that it is about.
    ConnectionProtocol,
    /// The client of the connection, before any translation.
    OriginalSource4,
    OriginalSource6,
    /// The sender of replies: the destination of the connection after its translation.
    ReplySource4,
    ReplySource6,
    /// The port from which replies are sent.
    ReplyPort,
}

/// The bit of [`Field::ConnectionState`] for the first packets of a connection.
pub const STATE_NEW: u32 = 1 << 3;
/// The bit of [`Field::ConnectionState`] for packets that belong to no connection and cannot open one.
pub const STATE_INVALID: u32 = 1 << 0;
/// The bit of [`Field::ConnectionState`] for packets that are excluded from connection tracking.
pub const STATE_UNTRACKED: u32 = 1 << 6;
/// The value of [`Field::DestinationType`] and [`Field::SourceType`] for addresses of this machine.
pub const TYPE_LOCAL: u32 = 2;

/// A step of a rule. The next step runs if this one matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression<'a> {
    Load(Field, Register),
    /// Loads a constant.
    Value(Register, &'a [u8]),
    Equal(Register, &'a [u8]),
    NotEqual(Register, &'a [u8]),
    /// Matches from the first value to the last.
    Between(Register, &'a [u8], &'a [u8]),
    /// Keeps the bits of the mask.
    Mask(Register, &'a [u8]),
    /// Copies four bytes from one register to another: the bits of the mask are kept, then those of `xor` inverted.
    Bits {
        from: Register,
        to: Register,
        mask: u32,
        xor: u32,
    },
    /// Sets the packet's mark.
    SetMark(Register),
    /// A random number below the modulus, in host byte order.
    Random(Register, u32),
    /// Matches if the register's value is in a set.
    In(Register, &'a str),
    /// Matches if the register's value is not in a set.
    NotIn(Register, &'a str),
    /// Looks up the register's value in a map, and loads the result into the other register.
    Map(Register, &'a str, Register),
    /// Applies the verdict that a map has for the register's value.
    Verdict(Register, &'a str),
    /// Adds the register's value to a dynamic set, or renews its timeout. Does not match if the set is full.
    Remember {
        set: &'a str,
        key: Register,
        timeout: Duration,
    },
    Jump(&'a str),
    Goto(&'a str),
    Return,
    Accept,
    Drop,
    /// Rejects with a TCP reset.
    RejectReset,
    /// Rejects with this code of "destination unreachable", of ICMP or ICMPv6 by the table's family.
    RejectUnreachable(u8),
    Masquerade,
    /// Masquerades with a random source port.
    MasqueradeRandom,
    /// Redirects to this machine, to the port in the register.
    Redirect(Register),
    /// Translates the destination to the address in one register and the port in another.
    DestinationNat {
        family: u8,
        address: Register,
        port: Register,
    },
}

impl Expression<'_> {
    pub(super) fn put(&self, list: &mut Message) {
        list.nest(LIST_ELEMENT, |element| {
            element.put_text(1, self.name());
            element.nest(2, |data| self.put_data(data));
        });
    }

    fn name(&self) -> &'static str {
        match self {
            Expression::Load(field, _) => load(*field).0,
            Expression::Equal(..) | Expression::NotEqual(..) => "cmp",
            Expression::Between(..) => "range",
            Expression::Mask(..) | Expression::Bits { .. } => "bitwise",
            Expression::SetMark(_) => "meta",
            Expression::Random(..) => "numgen",
            Expression::In(..) | Expression::NotIn(..) | Expression::Map(..) | Expression::Verdict(..) => "lookup",
            Expression::Remember { .. } => "dynset",
            Expression::Value(..)
            | Expression::Jump(_)
            | Expression::Goto(_)
            | Expression::Return
            | Expression::Accept
            | Expression::Drop => "immediate",
            Expression::RejectReset | Expression::RejectUnreachable(_) => "reject",
            Expression::Masquerade | Expression::MasqueradeRandom => "masq",
            Expression::Redirect(_) => "redir",
            Expression::DestinationNat { .. } => "nat",
        }
    }

    fn put_data(&self, data: &mut Message) {
        match self {
            Expression::Load(field, register) => {
                for (kind, value) in load(*field).1 {
                    match value {
                        Value::Register => data.put_be32(*kind, register.number()),
                        Value::Number(number) => data.put_be32(*kind, *number),
                        Value::Byte(byte) => data.put_u8(*kind, *byte),
                    }
                }
            }
            Expression::Value(register, value) => {
                data.put_be32(1, register.number());
                data.nest(2, |nest| nest.put(DATA_VALUE, value));
            }
            Expression::Bits { from, to, mask, xor } => put_bits(data, [*from, *to], *mask, *xor),
            Expression::SetMark(register) => {
                const MARK: u32 = 3;
                data.put_be32(2, MARK);
                data.put_be32(3, register.number());
            }
            Expression::Random(register, modulus) => {
                const RANDOM: u32 = 1;
                data.put_be32(1, register.number());
                data.put_be32(2, *modulus);
                data.put_be32(3, RANDOM);
                data.put_be32(4, 0);
            }
            Expression::Equal(register, value) => put_compare(data, *register, 0, value),
            Expression::NotEqual(register, value) => put_compare(data, *register, 1, value),
            Expression::Between(register, first, last) => {
                put_compare(data, *register, 0, first);
                data.nest(4, |nest| nest.put(DATA_VALUE, last));
            }
            Expression::Mask(register, mask) => put_mask(data, *register, mask),
            Expression::In(register, set) => put_lookup(data, set, *register, None),
            Expression::NotIn(register, set) => {
                const INVERT: u32 = 1;
                put_lookup(data, set, *register, None);
                data.put_be32(5, INVERT);
            }
            Expression::Remember { set, key, timeout } => {
                const UPDATE: u32 = 1;
                data.put_text(1, set);
                data.put_be32(3, UPDATE);
                data.put_be32(4, key.number());
                data.put_be64(6, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            }
            Expression::Map(register, map, into) => put_lookup(data, map, *register, Some(into.number())),
            Expression::Verdict(register, map) => put_lookup(data, map, *register, Some(VERDICT_REGISTER)),
            Expression::Jump(chain) => put_verdict(data, |verdict| put_jump(verdict, chain)),
            Expression::Goto(chain) => put_verdict(data, |verdict| put_goto(verdict, chain)),
            Expression::Return => put_code(data, -5),
            Expression::Accept => put_code(data, 1),
            Expression::Drop => put_code(data, 0),
            Expression::RejectReset => put_reject(data, 1, 0),
            Expression::RejectUnreachable(code) => put_reject(data, 0, *code),
            Expression::Masquerade => {}
            Expression::MasqueradeRandom => data.put_be32(1, RANDOM_FULLY),
            Expression::Redirect(port) => data.put_be32(1, port.number()),
            Expression::DestinationNat { family, address, port } => {
                const DESTINATION: u32 = 1;
                data.put_be32(1, DESTINATION);
                data.put_be32(2, u32::from(*family));
                data.put_be32(3, address.number());
                data.put_be32(5, port.number());
            }
        }
    }
}

const VERDICT_REGISTER: u32 = 0;
const RANDOM_FULLY: u32 = 1 << 4;

enum Value {
    Register,
    Number(u32),
    Byte(u8),
}

/// The expression that loads a field, and its attributes.
fn load(field: Field) -> (&'static str, &'static [(u16, Value)]) {
    use Value::{Byte, Number, Register};
    const LINK: Value = Number(0);
    const NETWORK: Value = Number(1);
    const TRANSPORT: Value = Number(2);
    /// The directions of a connection.
    const ORIGINAL: Value = Byte(0);
    const REPLY: Value = Byte(1);
    match field {
        Field::NetworkProtocol => ("meta", &[(1, Register), (2, Number(15))]),
        Field::TransportProtocol => ("meta", &[(1, Register), (2, Number(16))]),
        Field::Mark => ("meta", &[(1, Register), (2, Number(3))]),
        // Base, offset and length.
        Field::Ipv4Source => ("payload", &[(1, Register), (2, NETWORK), (3, Number(12)), (4, Number(4))]),
        Field::Ipv4Destination => ("payload", &[(1, Register), (2, NETWORK), (3, Number(16)), (4, Number(4))]),
        Field::Ipv6Source => ("payload", &[(1, Register), (2, NETWORK), (3, Number(8)), (4, Number(16))]),
        Field::Ipv6Destination => ("payload", &[(1, Register), (2, NETWORK), (3, Number(24)), (4, Number(16))]),
        Field::DestinationPort => ("payload", &[(1, Register), (2, TRANSPORT), (3, Number(2)), (4, Number(2))]),
        // The route type of the destination address.
        Field::DestinationType => ("fib", &[(1, Register), (2, Number(3)), (3, Number(2))]),
        Field::SourceType => ("fib", &[(1, Register), (2, Number(3)), (3, Number(1))]),
        Field::InputName => ("meta", &[(1, Register), (2, Number(6))]),
        Field::OutputName => ("meta", &[(1, Register), (2, Number(7))]),
        Field::EtherType => ("meta", &[(1, Register), (2, Number(1))]),
        Field::EtherDestination => ("payload", &[(1, Register), (2, LINK), (3, Number(0)), (4, Number(6))]),
        Field::EtherSource => ("payload", &[(1, Register), (2, LINK), (3, Number(6)), (4, Number(6))]),
        Field::ArpSenderMac => ("payload", &[(1, Register), (2, NETWORK), (3, Number(8)), (4, Number(6))]),
        Field::ArpSenderIpv4 => ("payload", &[(1, Register), (2, NETWORK), (3, Number(14)), (4, Number(4))]),
        Field::IcmpType => ("payload", &[(1, Register), (2, TRANSPORT), (3, Number(0)), (4, Number(1))]),
        Field::NeighbourTarget => ("payload", &[(1, Register), (2, TRANSPORT), (3, Number(8)), (4, Number(16))]),
        Field::ConnectionState => ("ct", &[(1, Register), (2, Number(0))]),
        Field::ConnectionStatus => ("ct", &[(1, Register), (2, Number(2))]),
        Field::OriginalPort => ("ct", &[(1, Register), (2, Number(12)), (3, ORIGINAL)]),
        Field::ConnectionProtocol => ("ct", &[(1, Register), (2, Number(10)), (3, ORIGINAL)]),
        Field::OriginalSource4 => ("ct", &[(1, Register), (2, Number(19)), (3, ORIGINAL)]),
        Field::OriginalSource6 => ("ct", &[(1, Register), (2, Number(21)), (3, ORIGINAL)]),
        Field::ReplySource4 => ("ct", &[(1, Register), (2, Number(19)), (3, REPLY)]),
        Field::ReplySource6 => ("ct", &[(1, Register), (2, Number(21)), (3, REPLY)]),
        Field::ReplyPort => ("ct", &[(1, Register), (2, Number(11)), (3, REPLY)]),
    }
}

fn put_compare(data: &mut Message, register: Register, operation: u32, value: &[u8]) {
    data.put_be32(1, register.number());
    data.put_be32(2, operation);
    data.nest(3, |nest| nest.put(DATA_VALUE, value));
}

fn put_mask(data: &mut Message, register: Register, mask: &[u8]) {
    data.put_be32(1, register.number());
    data.put_be32(2, register.number());
    data.put_be32(3, mask.len() as u32);
    data.nest(4, |nest| nest.put(DATA_VALUE, mask));
    data.nest(5, |nest| nest.put(DATA_VALUE, &vec![0; mask.len()]));
}

fn put_bits(data: &mut Message, [from, to]: [Register; 2], mask: u32, xor: u32) {
    data.put_be32(1, from.number());
    data.put_be32(2, to.number());
    data.put_be32(3, 4);
    data.nest(4, |nest| nest.put(DATA_VALUE, &mask.to_ne_bytes()));
    data.nest(5, |nest| nest.put(DATA_VALUE, &xor.to_ne_bytes()));
}

fn put_reject(data: &mut Message, kind: u32, code: u8) {
    data.put_be32(1, kind);
    data.put_u8(2, code);
}

fn put_code(data: &mut Message, code: i32) {
    put_verdict(data, |verdict| verdict.nest(DATA_VERDICT, |nest| nest.put_be32(VERDICT_CODE, code.cast_unsigned())));
}

fn put_lookup(data: &mut Message, set: &str, register: Register, into: Option<u32>) {
    data.put_text(1, set);
    data.put_be32(2, register.number());
    if let Some(into) = into {
        data.put_be32(3, into);
    }
}

fn put_verdict(data: &mut Message, fill: impl FnOnce(&mut Message)) {
    data.put_be32(1, VERDICT_REGISTER);
    data.nest(2, fill);
}
