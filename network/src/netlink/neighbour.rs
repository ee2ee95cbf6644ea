//! Neighbour entries: the MAC address of an IP address on a device.

use std::net::IpAddr;

use super::link::Mac;
use super::message::{Message, attribute, u32_of};
use super::route::family;
use super::socket::{CREATE, REPLACE};
use super::{Error, Reply, Rtnl};
use crate::cidr::{from_octets, octets};

pub(super) const NEWNEIGH: u16 = 28;
pub(super) const DELNEIGH: u16 = 29;
pub(super) const GETNEIGH: u16 = 30;
pub(super) const NDA_DST: u16 = 1;
pub(super) const NDA_LLADDR: u16 = 2;
pub(super) const PERMANENT: u16 = 0x80;
pub(super) const NDMSG: usize = 12;

/// A neighbour entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub device: u32,
    pub address: IpAddr,
    pub mac: Mac,
}

impl Rtnl {
    /// Sets a permanent entry, and replaces an existing one.
    pub fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Error> {
        let mut message = Message::new(NEWNEIGH, CREATE | REPLACE, &ndmsg(neighbour.device, neighbour.address));
        message.put(NDA_DST, &octets(neighbour.address));
        message.put(NDA_LLADDR, &neighbour.mac);
        self.0.request(format!("set the neighbour {}", neighbour.address), message)
    }

    /// Deletes an entry.
    pub fn delete_neighbour(&mut self, device: u32, address: IpAddr) -> Result<(), Error> {
        let mut message = Message::new(DELNEIGH, 0, &ndmsg(device, address));
        message.put(NDA_DST, &octets(address));
        self.0.request(format!("delete the neighbour {address}"), message)
    }

    /// The entries of a device whose MAC address is known.
    pub fn neighbours(&mut self, device: u32) -> Result<Vec<Neighbour>, Error> {
        let replies = self.0.dump("list neighbours", || Message::new(GETNEIGH, 0, &[0; NDMSG]))?;
        Ok(replies.iter().filter_map(parse).filter(|neighbour| neighbour.device == device).collect())
    }
}

/// struct ndmsg.
fn ndmsg(device: u32, address: IpAddr) -> [u8; NDMSG] {
    let mut header = [0; NDMSG];
    header[0] = family(address);
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
    header
}

fn parse(reply: &Reply) -> Option<Neighbour> {
    let attributes = reply.payload.get(NDMSG..)?;
    Some(Neighbour {
        device: u32_of(reply.payload.get(4..8)?)?,
        address: from_octets(attribute(attributes, NDA_DST)?)?,
        mac: attribute(attributes, NDA_LLADDR)?.try_into().ok()?,
    })
}
