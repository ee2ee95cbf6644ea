//! Links: devices, bridges and veth pairs.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use super::message::{Message, attribute, text, u32_of};
use super::socket::{CREATE, EXCL};
use super::{Error, Reply, Rtnl};
use crate::ns::Netns;

/// A MAC address.
pub type Mac = [u8; 6];

pub(super) const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const GETLINK: u16 = 18;
const SETLINK: u16 = 19;

pub(super) const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
pub(super) const IFLA_LINKINFO: u16 = 18;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const VETH_INFO_PEER: u16 = 1;

pub(super) const IFF_UP: u32 = 1;
const IFF_PROMISC: u32 = 0x100;
const AF_BRIDGE: u8 = 7;
pub(super) const IFINFO: usize = 16;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Mac,
    pub mtu: u32,
    pub up: bool,
    pub promiscuous: bool,
    pub master: Option<u32>,
    /// The device that this one is linked to. For a veth this is the other end, which may be in another namespace.
    pub peer: Option<u32>,
    /// `bridge`, `veth` and so on; None for physical devices.
    pub kind: Option<String>,
}

/// A veth pair whose other end is created in another namespace, so that no device has to be moved.
pub struct Veth<'a> {
    pub name: &'a str,
    pub peer: &'a str,
    pub peer_netns: &'a Netns,
    pub peer_mac: Option<Mac>,
    pub master: Option<u32>,
    pub mtu: Option<u32>,
}

impl Rtnl {
    /// The device with this name.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        Ok(self.link_reply(name)?.as_ref().and_then(parse))
    }

    /// The kernel's description of a device.
    pub(super) fn link_reply(&mut self, name: &str) -> Result<Option<Reply>, Error> {
        // No device has such a name, and the kernel would report an error.
        if name.is_empty() || name.len() > 15 {
            return Ok(None);
        }
        let mut message = Message::new(GETLINK, 0, &ifinfo(0, 0, 0, 0));
        message.put_text(IFLA_IFNAME, name);
        self.0.get(format!("look for the device {name}"), message)
    }

    /// Whether the device exists. Does not take the lock for which [`Rtnl::link`] may wait while a device is deleted.
    pub fn has_link(&mut self, name: &str) -> Result<bool, Error> {
        match name_to_index(self.0.as_fd(), name) {
            Ok(_) => Ok(true),
            Err(Errno::NODEV) => Ok(false),
            Err(errno) => Err(Error::new(format!("look for the device {name}"), errno)),
        }
    }

    /// The device with this index.
    pub fn link_at(&mut self, index: u32) -> Result<Option<Link>, Error> {
        let message = Message::new(GETLINK, 0, &ifinfo(0, index, 0, 0));
        Ok(self.0.get(format!("look for the device {index}"), message)?.and_then(|reply| parse(&reply)))
    }

    /// All devices.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let replies = self.0.dump("list devices", || Message::new(GETLINK, 0, &ifinfo(0, 0, 0, 0)))?;
        Ok(replies.iter().filter_map(parse).collect())
    }

    /// Creates a device that only needs a name, such as a bridge or an ifb, and sets it up. Fails with EEXIST if it exists.
    pub fn add_link(&mut self, kind: &str, name: &str, mtu: Option<u32>) -> Result<(), Error> {
        let mut message = Message::new(NEWLINK, CREATE | EXCL, &ifinfo(0, 0, IFF_UP, IFF_UP));
        message.put_text(IFLA_IFNAME, name);
        if let Some(mtu) = mtu {
            message.put_u32(IFLA_MTU, mtu);
        }
        message.nest(IFLA_LINKINFO, |info| info.put_text(IFLA_INFO_KIND, kind));
        self.0.request(format!("create the {kind} {name}"), message)
    }

    /// Creates the pair. This end is set up and attached to its bridge in the same request. The other end cannot be set
    /// up here: the kernel refuses that before the pair exists.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> Result<(), Error> {
        let mut message = Message::new(NEWLINK, CREATE | EXCL, &ifinfo(0, 0, IFF_UP, IFF_UP));
        message.put_text(IFLA_IFNAME, veth.name);
        if let Some(mtu) = veth.mtu {
            message.put_u32(IFLA_MTU, mtu);
        }
        if let Some(master) = veth.master {
            message.put_u32(IFLA_MASTER, master);
        }
        message.nest(IFLA_LINKINFO, |info| {
            info.put_text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| data.nest(VETH_INFO_PEER, |peer| put_peer(peer, veth)));
        });
        self.0.request(format!("create the veth pair {} and {}", veth.name, veth.peer), message)
    }

    /// Sets a device up.
    pub fn set_up(&mut self, index: u32) -> Result<(), Error> {
        self.0.request("set a device up", Message::new(SETLINK, 0, &ifinfo(0, index, IFF_UP, IFF_UP)))
    }

    /// Sets a device down.
    pub fn set_down(&mut self, index: u32) -> Result<(), Error> {
        self.0.request("set a device down", Message::new(SETLINK, 0, &ifinfo(0, index, 0, IFF_UP)))
    }

    /// Makes a device promiscuous.
    pub fn set_promiscuous(&mut self, index: u32) -> Result<(), Error> {
        let header = ifinfo(0, index, IFF_PROMISC, IFF_PROMISC);
        self.0.request("set a device promiscuous", Message::new(SETLINK, 0, &header))
    }

    /// Sets the MAC address of a device.
    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), Error> {
        let mut message = Message::new(SETLINK, 0, &ifinfo(0, index, 0, 0));
        message.put(IFLA_ADDRESS, &mac);
        self.0.request(format!("set the hardware address {}", mac_text(mac)), message)
    }

    /// Sets whether the bridge may send a frame back through the port on which it was received.
    pub fn set_hairpin(&mut self, index: u32, on: bool) -> Result<(), Error> {
        let mut message = Message::new(SETLINK, 0, &ifinfo(AF_BRIDGE, index, 0, 0));
        message.nest(IFLA_PROTINFO, |port| port.put_u8(IFLA_BRPORT_MODE, on.into()));
        self.0.request("set the hairpin mode of a port", message)
    }

    /// Sets whether a port can send to other isolated ports of its bridge.
    pub fn set_isolated(&mut self, index: u32, on: bool) -> Result<(), Error> {
        let mut message = Message::new(SETLINK, 0, &ifinfo(AF_BRIDGE, index, 0, 0));
        message.nest(IFLA_PROTINFO, |port| port.put_u8(IFLA_BRPORT_ISOLATED, on.into()));
        self.0.request("set the isolation of a port", message)
    }

    /// Adds a device to a group. It is no error if the device does not exist.
    pub fn set_group(&mut self, name: &str, group: u32) -> Result<(), Error> {
        let mut message = Message::new(SETLINK, 0, &ifinfo(0, 0, 0, 0));
        message.put_text(IFLA_IFNAME, name);
        message.put_u32(IFLA_GROUP, group);
        match self.0.request(format!("put the device {name} into a group"), message) {
            Err(error) if error.is(Errno::NODEV) => Ok(()),
            outcome => outcome,
        }
    }

    /// Deletes all devices of a group in one request. It is no error if there is none.
    pub fn delete_group(&mut self, group: u32) -> Result<(), Error> {
        let mut message = Message::new(DELLINK, 0, &ifinfo(0, 0, 0, 0));
        message.put_u32(IFLA_GROUP, group);
        match self.0.request("delete a group of devices", message) {
            Err(error) if error.is(Errno::NODEV) => Ok(()),
            outcome => outcome,
        }
    }

    /// Deletes a device, and returns whether it existed.
    pub fn delete_link(&mut self, name: &str) -> Result<bool, Error> {
        let mut message = Message::new(DELLINK, 0, &ifinfo(0, 0, 0, 0));
        message.put_text(IFLA_IFNAME, name);
        match self.0.request(format!("delete the device {name}"), message) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::NODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn put_peer(peer: &mut Message, veth: &Veth<'_>) {
    peer.raw(&ifinfo(0, 0, 0, 0));
    peer.put_text(IFLA_IFNAME, veth.peer);
    peer.put(IFLA_NET_NS_FD, &veth.peer_netns.as_fd().as_raw_fd().to_ne_bytes());
    if let Some(mtu) = veth.mtu {
        peer.put_u32(IFLA_MTU, mtu);
    }
    if let Some(mac) = veth.peer_mac {
        peer.put(IFLA_ADDRESS, &mac);
    }
}

/// struct ifinfomsg.
pub(super) fn ifinfo(family: u8, index: u32, flags: u32, change: u32) -> [u8; IFINFO] {
    let mut header = [0; IFINFO];
    header[0] = family;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn parse(reply: &Reply) -> Option<Link> {
    let flags = u32_of(reply.payload.get(8..12)?)?;
    let attributes = reply.payload.get(IFINFO..)?;
    let number = |kind| attribute(attributes, kind).and_then(u32_of);
    let info = attribute(attributes, IFLA_LINKINFO);
    Some(Link {
        index: u32_of(reply.payload.get(4..8)?)?,
        name: text(attribute(attributes, IFLA_IFNAME)?),
        mac: attribute(attributes, IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default(),
        mtu: number(IFLA_MTU).unwrap_or(0),
        up: flags & IFF_UP != 0,
        promiscuous: flags & IFF_PROMISC != 0,
        master: number(IFLA_MASTER),
        peer: number(IFLA_LINK),
        kind: info.and_then(|info| attribute(info, IFLA_INFO_KIND)).map(text),
    })
}

/// Formats a MAC address.
pub fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Parses a MAC address; None if it is invalid.
pub fn parse_mac(text: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> = text
        .split([':', '-'])
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2 && !part.starts_with('+')))
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses() {
        assert_eq!(parse_mac("0a:58:0A:01:00:02"), Some([0x0a, 0x58, 0x0a, 1, 0, 2]));
        assert_eq!(mac_text([0x0a, 0x58, 0x0a, 1, 0, 2]), "0a:58:0a:01:00:02");
        for invalid in
            ["", "0a:58", "0a:58:0a:01:00:02:03", "0g:58:0a:01:00:02", "a:58:0a:01:00:02", "+a:58:0a:01:00:02"]
        {
            assert_eq!(parse_mac(invalid), None, "{invalid}");
        }
    }
}
