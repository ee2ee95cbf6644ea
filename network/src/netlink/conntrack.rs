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
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const IPV4_DESTINATION: u16 = 2;
const IPV6_DESTINATION: u16 = 4;
const PROTOCOL_NUMBER: u16 = 1;
const DESTINATION_PORT: u16 = 3;
/// The length of the header before the attributes of a reply.
const HEADER: usize = 4;

/// The original direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub protocol: u8,
    pub destination: IpAddr,
    pub port: u16,
}

/// A socket for connection tracking.
pub struct Conntrack(Socket);

impl Conntrack {
    /// In the calling thread's namespace.
    pub fn open() -> Result<Conntrack, Error> {
        Socket::open(Some(rustix::net::netlink::NETFILTER)).map(Conntrack)
    }

    /// Deletes the connections of an address family that match.
    pub fn delete_matching(&mut self, ipv4: bool, matches: impl Fn(&Flow) -> bool) -> Result<(), Error> {
        let header = [(if ipv4 { libc::AF_INET } else { libc::AF_INET6 }) as u8, 0, 0, 0];
        let replies = self.0.dump("list connections", || Message::new(GET, 0, &header))?;
        for reply in replies.iter().filter(|reply| parse(reply).is_some_and(|flow| matches(&flow))) {
            self.delete(&header, reply)?;
        }
        Ok(())
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
    let original = attribute(reply.payload.get(HEADER..)?, ORIGINAL)?;
    let (ip, protocol) = (attribute(original, TUPLE_IP)?, attribute(original, TUPLE_PROTOCOL)?);
    let destination = attribute(ip, IPV4_DESTINATION).or_else(|| attribute(ip, IPV6_DESTINATION))?;
    let port = attribute(protocol, DESTINATION_PORT)?.try_into().ok()?;
    Some(Flow {
        protocol: *attribute(protocol, PROTOCOL_NUMBER)?.first()?,
        destination: from_octets(destination)?,
        port: u16::from_be_bytes(port),
    })
}
