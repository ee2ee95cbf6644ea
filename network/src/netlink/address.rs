//! IP addresses of devices.

use rustix::io::Errno;

use super::message::{Message, attribute, u32_of};
use super::socket::{CREATE, EXCL};
use super::{Error, Reply, Rtnl};
use crate::cidr::{IpNet, from_octets, octets};

const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
const GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
/// Skips duplicate address detection: IPAM guarantees that the address is unique.
const IFA_F_NODAD: u32 = 0x02;
const IFA_F_NOPREFIXROUTE: u32 = 0x200;
const IFADDR: usize = 8;

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub net: IpNet,
    /// Assigned by the kernel, for the link only.
    pub link_local: bool,
}

impl Rtnl {
    /// The addresses of a device.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error> {
        let replies = self.0.dump("list addresses", || Message::new(GETADDR, 0, &ifaddr(0, 0, index)))?;
        // Kernels without strict checking list the addresses of all devices.
        let of_device = |reply: &&Reply| reply.payload.get(4..8).and_then(u32_of) == Some(index);
        Ok(replies.iter().filter(of_device).filter_map(parse).collect())
    }

    /// Fails with EEXIST if the device has the address.
    pub fn add_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        self.add_address_with(index, net, 0)
    }

    /// The same without a route to the address's network.
    pub fn add_address_without_route(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        self.add_address_with(index, net, IFA_F_NOPREFIXROUTE)
    }

    fn add_address_with(&mut self, index: u32, net: IpNet, flags: u32) -> Result<(), Error> {
        let mut message = Message::new(NEWADDR, CREATE | EXCL, &ifaddr(family(net), net.prefix(), index));
        put_address(&mut message, net);
        if net.is_ipv4() && net.prefix() < 31 {
            message.put(IFA_BROADCAST, &octets(net.last()));
        }
        let flags = if net.is_ipv4() { flags } else { flags | IFA_F_NODAD };
        if flags != 0 {
            message.put_u32(IFA_FLAGS, flags);
        }
        self.0.request(format!("add the address {net}"), message)
    }

    /// Deletes an address, if the device has it.
    pub fn delete_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        let mut message = Message::new(DELADDR, 0, &ifaddr(family(net), net.prefix(), index));
        put_address(&mut message, net);
        match self.0.request(format!("delete the address {net}"), message) {
            Err(error) if error.is(Errno::ADDRNOTAVAIL) => Ok(()),
            outcome => outcome,
        }
    }
}

fn put_address(message: &mut Message, net: IpNet) {
    message.put(IFA_LOCAL, &octets(net.address));
    message.put(IFA_ADDRESS, &octets(net.address));
}

fn family(net: IpNet) -> u8 {
    super::route::family(net.address)
}

/// struct ifaddrmsg.
fn ifaddr(family: u8, prefix: u8, index: u32) -> [u8; IFADDR] {
    let mut header = [0; IFADDR];
    (header[0], header[1]) = (family, prefix);
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

fn parse(reply: &Reply) -> Option<Address> {
    const SCOPE_LINK: u8 = 253;
    let attributes = reply.payload.get(IFADDR..)?;
    let address = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let net = IpNet::new(from_octets(address)?, *reply.payload.get(1)?)?;
    Some(Address { net, link_local: reply.payload.get(3) == Some(&SCOPE_LINK) })
}
