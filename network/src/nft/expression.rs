//! Expressions of rules: loads from a packet, comparisons, and verdicts.

use super::batch::LIST_ELEMENT;
use super::set::{DATA_VALUE, DATA_VERDICT, VERDICT_CODE, put_jump};
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
    /// Whether it is IPv4 or IPv6: one byte, 2 or 10.
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
    /// The status bits of the connection.
    ConnectionStatus,
    /// The destination port of the connection's first packet.
    OriginalPort,
}

/// A step of a rule. The next step runs if this one matches.
pub enum Expression<'a> {
    Load(Field, Register),
    Equal(Register, &'a [u8]),
    NotEqual(Register, &'a [u8]),
    /// Keeps the bits of the mask.
    Mask(Register, &'a [u8]),
    /// Matches if the register's value is in a set.
    In(Register, &'a str),
    /// Looks up the register's value in a map, and loads the result into the other register.
    Map(Register, &'a str, Register),
    /// Applies the verdict that a map has for the register's value.
    Verdict(Register, &'a str),
    Jump(&'a str),
    Return,
    Masquerade,
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
            Expression::Mask(..) => "bitwise",
            Expression::In(..) | Expression::Map(..) | Expression::Verdict(..) => "lookup",
            Expression::Jump(_) | Expression::Return => "immediate",
            Expression::Masquerade => "masq",
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
            Expression::Equal(register, value) => put_compare(data, *register, 0, value),
            Expression::NotEqual(register, value) => put_compare(data, *register, 1, value),
            Expression::Mask(register, mask) => put_mask(data, *register, mask),
            Expression::In(register, set) => put_lookup(data, set, *register, None),
            Expression::Map(register, map, into) => put_lookup(data, map, *register, Some(into.number())),
            Expression::Verdict(register, map) => put_lookup(data, map, *register, Some(VERDICT_REGISTER)),
            Expression::Jump(chain) => put_verdict(data, |verdict| put_jump(verdict, chain)),
            Expression::Return => put_verdict(data, |verdict| {
                const RETURN: i32 = -5;
                verdict.nest(DATA_VERDICT, |code| code.put_be32(VERDICT_CODE, RETURN.cast_unsigned()));
            }),
            Expression::Masquerade => {}
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

enum Value {
    Register,
    Number(u32),
    Byte(u8),
}

/// The expression that loads a field, and its attributes.
fn load(field: Field) -> (&'static str, &'static [(u16, Value)]) {
    use Value::{Byte, Number, Register};
    const NETWORK: Value = Number(1);
    const TRANSPORT: Value = Number(2);
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
        Field::ConnectionStatus => ("ct", &[(1, Register), (2, Number(2))]),
        // In the original direction.
        Field::OriginalPort => ("ct", &[(1, Register), (2, Number(12)), (3, Byte(0))]),
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
