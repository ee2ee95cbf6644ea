//! VXLAN devices, and their forwarding entries: which host has a MAC address.

use std::net::IpAddr;

use super::link::{IFF_UP, Mac, ifinfo, mac_text};
use super::link::{
    IFINFO, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU, NEWLINK,
};
use super::message::{Message, attribute, u32_of};
use super::neighbour::{DELNEIGH, GETNEIGH, NDA_DST, NDA_LLADDR, NDMSG, NEWNEIGH, PERMANENT};
use super::socket::{CREATE, EXCL, REPLACE};
use super::{Error, Reply, Rtnl};
use crate::cidr::{from_octets, octets};

const IFLA_VXLAN_ID: u16 = 1;
const IFLA_VXLAN_LINK: u16 = 3;
const IFLA_VXLAN_LOCAL: u16 = 4;
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_LOCAL6: u16 = 17;
const KIND: &str = "vxlan";
/// The entry belongs to the device itself, not to a bridge above it.
const NTF_SELF: u8 = 0x02;
const AF_BRIDGE: u8 = 7;

/// The configuration of a VXLAN device that learns no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// The VXLAN network identifier.
    pub vni: u32,
    /// The UDP port of all hosts.
    pub port: u16,
    /// The source address of packets between hosts.
    pub local: IpAddr,
    /// The device through which packets leave.
    pub device: u32,
}

/// A forwarding entry of a VXLAN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// The MAC address of the other host's device.
    pub mac: Mac,
    /// The address of the other host.
    pub host: IpAddr,
}

impl Rtnl {
    /// Creates a VXLAN device and sets it up. Fails with EEXIST if the name is in use, or if another device has the same
    /// identifier and port.
    pub fn add_vxlan(&mut self, name: &str, vxlan: &Vxlan, mac: Mac, mtu: u32) -> Result<(), Error> {
        let mut message = Message::new(NEWLINK, CREATE | EXCL, &ifinfo(0, 0, IFF_UP, IFF_UP));
        message.put_text(IFLA_IFNAME, name);
        message.put(IFLA_ADDRESS, &mac);
        message.put_u32(IFLA_MTU, mtu);
        message.nest(IFLA_LINKINFO, |info| {
            info.put_text(IFLA_INFO_KIND, KIND);
            info.nest(IFLA_INFO_DATA, |data| {
                data.put_u32(IFLA_VXLAN_ID, vxlan.vni);
                data.put_u32(IFLA_VXLAN_LINK, vxlan.device);
                let local = if vxlan.local.is_ipv4() { IFLA_VXLAN_LOCAL } else { IFLA_VXLAN_LOCAL6 };
                data.put(local, &octets(vxlan.local));
                data.put(IFLA_VXLAN_PORT, &vxlan.port.to_be_bytes());
                data.put_u8(IFLA_VXLAN_LEARNING, 0);
            });
        });
        self.0.request(format!("create the VXLAN device {name}"), message)
    }

    /// The configuration of a device; None if it does not exist, or is no VXLAN device that learns nothing.
    pub fn vxlan(&mut self, name: &str) -> Result<Option<Vxlan>, Error> {
        Ok(self.link_reply(name)?.as_ref().and_then(parse))
    }

    /// Sets where frames for a MAC address are sent, and replaces an existing entry.
    pub fn set_forwarding(&mut self, device: u32, entry: &Forwarding) -> Result<(), Error> {
        let message = forwarding(NEWNEIGH, CREATE | REPLACE, device, entry);
        self.0.request(format!("forward frames for {} to {}", mac_text(entry.mac), entry.host), message)
    }

    /// Deletes a forwarding entry.
    pub fn delete_forwarding(&mut self, device: u32, entry: &Forwarding) -> Result<(), Error> {
        let message = forwarding(DELNEIGH, 0, device, entry);
        self.0.request(format!("delete the forwarding entry of {}", mac_text(entry.mac)), message)
    }

    /// The forwarding entries of a device.
    pub fn forwardings(&mut self, device: u32) -> Result<Vec<Forwarding>, Error> {
        let mut header = [0; NDMSG];
        header[0] = AF_BRIDGE;
        header[4..8].copy_from_slice(&device.to_ne_bytes());
        let replies = self.0.dump("list forwarding entries", || Message::new(GETNEIGH, 0, &header))?;
        Ok(replies.iter().filter_map(|reply| parse_forwarding(reply, device)).collect())
    }
}

fn parse(reply: &Reply) -> Option<Vxlan> {
    let info = attribute(reply.payload.get(IFINFO..)?, IFLA_LINKINFO)?;
    let is_vxlan = attribute(info, IFLA_INFO_KIND).map(super::message::text).as_deref() == Some(KIND);
    let data = attribute(info, IFLA_INFO_DATA).filter(|_| is_vxlan)?;
    let local = [IFLA_VXLAN_LOCAL, IFLA_VXLAN_LOCAL6].iter().find_map(|kind| attribute(data, *kind));
    let port: [u8; 2] = attribute(data, IFLA_VXLAN_PORT)?.try_into().ok()?;
    let learns = attribute(data, IFLA_VXLAN_LEARNING)?.first() != Some(&0);
    (!learns).then_some(Vxlan {
        vni: attribute(data, IFLA_VXLAN_ID).and_then(u32_of)?,
        port: u16::from_be_bytes(port),
        local: from_octets(local?)?,
        device: attribute(data, IFLA_VXLAN_LINK).and_then(u32_of)?,
    })
}

/// struct ndmsg of a forwarding entry.
fn header(device: u32) -> [u8; NDMSG] {
    let mut header = [0; NDMSG];
    header[0] = AF_BRIDGE;
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
    header[10] = NTF_SELF;
    header
}

fn forwarding(kind: u16, flags: u16, device: u32, entry: &Forwarding) -> Message {
    let mut message = Message::new(kind, flags, &header(device));
    message.put(NDA_LLADDR, &entry.mac);
    message.put(NDA_DST, &octets(entry.host));
    message
}

fn parse_forwarding(reply: &Reply, device: u32) -> Option<Forwarding> {
    (u32_of(reply.payload.get(4..8)?)? == device).then_some(())?;
    let attributes = reply.payload.get(NDMSG..)?;
    Some(Forwarding {
        mac: attribute(attributes, NDA_LLADDR)?.try_into().ok()?,
        host: from_octets(attribute(attributes, NDA_DST)?)?,
    })
}
