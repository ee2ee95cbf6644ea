//! The kernel's connection tracking table.

use std::net::IpAddr;

use rustix::io::Errno;

use super::message::{Message, attribute};
use super::socket::{Error, Reply, Socket};
use crate::cidr::from_octets;

const SUBSYSTEM: u16 = 1;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const NESTED: u16 = 0x8000;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const IPV4_SOURCE: u16 = 1;
const IPV6_SOURCE: u16 = 3;
const IPV4_DESTINATION: u16 = 2;
const IPV6_DESTINATION: u16 = 4;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// The length of the header before the attributes of a reply.
const HEADER: usize = 4;

/// A tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub protocol: u8,
    /// The destination of the client's packets.
    pub destination: IpAddr,
    pub port: u16,
    /// The source of replies: the destination after translation.
    pub reply_source: IpAddr,
    pub reply_port: u16,
}

/// A socket for connection tracking.
pub struct Conntrack(Socket);

impl Conntrack {
    /// In the calling thread's namespace.
    pub fn open() -> Result<Conntrack, Error> {
        Socket::open(Some(rustix::net::netlink::NETFILTER)).map(Conntrack)
    }

    /// Deletes the connections of an address family that match, and returns their number.
    pub fn delete_matching(&mut self, ipv4: bool, matches: impl Fn(&Flow) -> bool) -> Result<usize, Error> {
        let header = [(if ipv4 { libc::AF_INET } else { libc::AF_INET6 }) as u8, 0, 0, 0];
        let replies = self.0.dump("list connections", || Message::new(GET, 0, &header))?;
        let mut deleted = 0;
        for reply in replies.iter().filter(|reply| parse(reply).is_some_and(|flow| matches(&flow))) {
            self.delete(&header, reply)?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// A connection that has ended in the meantime is not an error.
    fn delete(&mut self, header: &[u8], reply: &Reply) -> Result<(), Error> {
        let attributes = reply.payload.get(HEADER..).unwrap_or_default();
        let mut message = Message::new(DELETE, 0, header);
        message.put(ORIGINAL | NESTED, attribute(attributes, ORIGINAL).unwrap_or_default());
        if let Some(zone) = attribute(attributes, ZONE) {
            message.put(ZONE, zone);
        }
        match self.0.request("delete a connection", message) {
            Err(error) if error.is(Errno::NOENT) => Ok(()),
            outcome => outcome,
        }
    }
}

fn parse(reply: &Reply) -> Option<Flow> {
    let attributes = reply.payload.get(HEADER..)?;
    let (original, back) = (attribute(attributes, ORIGINAL)?, attribute(attributes, REPLY)?);
    Some(Flow {
        protocol: *attribute(attribute(original, TUPLE_PROTOCOL)?, PROTOCOL_NUMBER)?.first()?,
        destination: address(original, [IPV4_DESTINATION, IPV6_DESTINATION])?,
        port: port(original, DESTINATION_PORT)?,
        reply_source: address(back, [IPV4_SOURCE, IPV6_SOURCE])?,
        reply_port: port(back, SOURCE_PORT)?,
    })
}

fn address(tuple: &[u8], kinds: [u16; 2]) -> Option<IpAddr> {
    let ip = attribute(tuple, TUPLE_IP)?;
    kinds.into_iter().find_map(|kind| attribute(ip, kind)).and_then(from_octets)
}

/// Zero for protocols without ports.
fn port(tuple: &[u8], kind: u16) -> Option<u16> {
    let bytes = attribute(attribute(tuple, TUPLE_PROTOCOL)?, kind);
    Some(bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes))
}
