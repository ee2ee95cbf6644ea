//! The pods on a bridge send only from their own hardware and IP addresses, and only to their gateway: packets between
//! them pass the IP layer of this machine, where services and network policies are. A pod's port and its addresses are
//! elements of sets of a table of the bridge family; the rules exist once.
//!
//! Isolated ports would do the second part too, but not together with the kernel's filtering of bridged frames
//! (br_netfilter), which sends a packet to another pod of the bridge directly after translating its destination.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Once;

use rustix::io::Errno;

use super::table::Table;
use crate::cidr::octets;
use crate::netlink::{self, Mac};
use crate::nft::{Batch, Data, Element, Expression, Family, Field, Hook, Kind, Nft, Register, Set};

const FAMILY: Family = Family::Bridge;
/// Ports of pods.
const PORTS: &str = "ports";
/// Ports, each with the hardware address of its pod.
const MACS: &str = "macs";
/// Ports, each with the hardware address of its gateway.
const GATEWAYS: &str = "gateways";
/// Ports, each with an address of its pod.
const ADDRESSES4: &str = "addresses4";
const ADDRESSES6: &str = "addresses6";
const SETS: [Set<'static>; 5] = {
    use Kind::{InterfaceName, Ipv4, Ipv6, Mac};
    [
        Set::of(PORTS, &[InterfaceName]),
        Set::of(MACS, &[InterfaceName, Mac]),
        Set::of(GATEWAYS, &[InterfaceName, Mac]),
        Set::of(ADDRESSES4, &[InterfaceName, Ipv4]),
        Set::of(ADDRESSES6, &[InterfaceName, Ipv6]),
    ]
};
const TRIES: usize = 8;
const NAME_BYTES: usize = 16;

/// A port, and what its pod may send.
pub(super) struct Port<'a> {
    pub(super) name: &'a str,
    pub(super) mac: Mac,
    pub(super) gateway: Mac,
    pub(super) ips: &'a [IpAddr],
}

/// Restricts a port to the addresses of its pod and its gateway. It may be set before the port exists.
pub(super) fn add(table: &mut Table<'_>, port: &Port<'_>, owner: &str) -> Result<(), netlink::Error> {
    let elements = elements(port, owner);
    let mut last = None;
    for _ in 0..TRIES {
        let mut batch = Batch::new(FAMILY, table.name);
        if last.is_some() && !table.nft.has_table(FAMILY, table.name)? {
            put_table(&mut batch);
        }
        elements.iter().for_each(|(set, element)| batch.add_elements(set, std::slice::from_ref(element)));
        match batch.commit(table.nft, "restrict the addresses of a port") {
            // The table is missing, or a concurrent caller has just created it.
            Err(error) if error.is(Errno::NOENT) || error.is(Errno::EXIST) => last = Some(error),
            Err(error) if error.is(Errno::AFNOSUPPORT) || error.is(Errno::OPNOTSUPP) => return report(&error),
            outcome => return outcome,
        }
    }
    last.map_or(Ok(()), Err)
}

/// The kernel has no nftables for bridges: pods run, but can send from addresses of other pods.
fn report(error: &netlink::Error) -> Result<(), netlink::Error> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::warn!(%error, "the source addresses of pods are not checked"));
    Ok(())
}

/// Removes the elements of an attachment.
pub(super) fn remove(table: &mut Table<'_>, owner: &str) -> Result<(), netlink::Error> {
    retain(table, |comment| comment != owner)
}

/// Removes the elements whose owners are not kept.
pub(super) fn retain(table: &mut Table<'_>, is_kept: impl Fn(&str) -> bool) -> Result<(), netlink::Error> {
    for _ in 0..TRIES {
        let mut batch = Batch::new(FAMILY, table.name);
        for set in SETS {
            let found = table.nft.elements(FAMILY, table.name, set.name)?;
            let removed: Vec<Element> = found.into_iter().filter(|element| !is_kept(&element.comment)).collect();
            batch.delete_elements(set.name, &removed);
        }
        if batch.is_empty() {
            return Ok(());
        }
        match batch.commit(table.nft, "remove the restrictions of a port") {
            Err(error) if error.is(Errno::NOENT) => {}
            outcome => return outcome,
        }
    }
    Ok(())
}

/// Whether the port of an attachment is restricted.
pub(super) fn exists(table: &mut Table<'_>, owner: &str) -> Result<bool, netlink::Error> {
    Ok(table.nft.elements(FAMILY, table.name, PORTS)?.iter().any(|element| element.comment == owner))
}

/// Deletes the table, if it exists.
pub(crate) fn remove_table(name: &str) -> Result<(), netlink::Error> {
    let mut nft = Nft::open()?;
    if !nft.has_table(FAMILY, name)? {
        return Ok(());
    }
    let mut batch = Batch::new(FAMILY, name);
    batch.delete_table();
    batch.commit(&mut nft, "delete the table of the bridge")
}

fn elements(port: &Port<'_>, owner: &str) -> Vec<(&'static str, Element)> {
    let mut name = port.name.as_bytes().to_vec();
    name.resize(NAME_BYTES, 0);
    let element = |part: &[u8]| Element::new(Element::join(&[&name, part]), Data::None, owner);
    let mut elements = vec![(PORTS, Element::new(name.clone(), Data::None, owner)), (MACS, element(&port.mac))];
    elements.push((GATEWAYS, element(&port.gateway)));
    for ip in port.ips {
        elements.push((if ip.is_ipv4() { ADDRESSES4 } else { ADDRESSES6 }, element(&octets(*ip))));
    }
    // Neighbour discovery uses the link-local address, and none while it is checked.
    for ip in [link_local(port.mac), Ipv6Addr::UNSPECIFIED] {
        elements.push((ADDRESSES6, element(&ip.octets())));
    }
    elements
}

/// The link-local address that the kernel derives from a hardware address.
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

const NAME: Register = Register(0);
const REST: Register = Register(4);

fn put_table(batch: &mut Batch<'_>) {
    const BEFORE_EVERYTHING: i32 = -400;
    const ARP: [u8; 2] = [0x08, 0x06];
    const IPV4: [u8; 2] = [0x08, 0x00];
    const IPV6: [u8; 2] = [0x86, 0xdd];
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    // Router advertisements and redirects: pods are no routers.
    const OF_ROUTERS: [&[u8]; 2] = [&[134], &[137]];
    const MULTICAST: [u8; 6] = [0x33, 0x33, 0, 0, 0, 0];
    const MULTICAST_MASK: [u8; 6] = [0xff, 0xff, 0, 0, 0, 0];
    batch.create_table();
    SETS.iter().for_each(|set| batch.create_set(set));
    batch.create_chain("prerouting", Some(Hook::filter(Hook::PREROUTING, BEFORE_EVERYTHING)));
    batch.create_chain("pods", None);
    let name = || Expression::Load(Field::InputName, NAME);
    batch.rule("prerouting", &[name(), Expression::In(NAME, PORTS), Expression::Goto("pods")]);
    let refuse_unless = |batch: &mut Batch<'_>, matches: &[Expression<'_>], field: Field, set: &'static str| {
        let mut rule = matches.to_vec();
        rule.extend([name(), Expression::Load(field, REST), Expression::NotIn(NAME, set), Expression::Drop]);
        batch.rule("pods", &rule);
    };
    let is = |protocol: &'static [u8; 2]| [Expression::Load(Field::EtherType, REST), Expression::Equal(REST, protocol)];
    refuse_unless(batch, &[], Field::EtherSource, MACS);
    refuse_unless(batch, &is(&ARP), Field::ArpSenderMac, MACS);
    refuse_unless(batch, &is(&ARP), Field::ArpSenderIpv4, ADDRESSES4);
    let [load, compare] = is(&ARP);
    batch.rule("pods", &[load, compare, Expression::Accept]);
    refuse_unless(batch, &is(&IPV4), Field::Ipv4Source, ADDRESSES4);
    refuse_unless(batch, &is(&IPV6), Field::Ipv6Source, ADDRESSES6);
    let icmp6 = [Expression::Load(Field::TransportProtocol, REST), Expression::Equal(REST, &[58])];
    let advertises = [Expression::Load(Field::IcmpType, REST), Expression::Equal(REST, &[NEIGHBOUR_ADVERTISEMENT])];
    let advertisement: Vec<_> = is(&IPV6).into_iter().chain(icmp6.clone()).chain(advertises).collect();
    refuse_unless(batch, &advertisement, Field::NeighbourTarget, ADDRESSES6);
    for kind in OF_ROUTERS {
        let mut rule: Vec<_> = is(&IPV6).into_iter().chain(icmp6.clone()).collect();
        rule.extend([Expression::Load(Field::IcmpType, REST), Expression::Equal(REST, kind), Expression::Drop]);
        batch.rule("pods", &rule);
    }
    for protocol in [&IPV4, &IPV6] {
        let mut rule = is(protocol).to_vec();
        let destination = Expression::Load(Field::EtherDestination, REST);
        rule.extend([name(), destination, Expression::In(NAME, GATEWAYS), Expression::Accept]);
        batch.rule("pods", &rule);
    }
    // Neighbour discovery is multicast.
    let mut rule: Vec<_> = is(&IPV6).into_iter().chain(icmp6).collect();
    let multicast = [Expression::Load(Field::EtherDestination, REST), Expression::Mask(REST, &MULTICAST_MASK)];
    rule.extend(multicast);
    rule.extend([Expression::Equal(REST, &MULTICAST), Expression::Accept]);
    batch.rule("pods", &rule);
    // Nothing else: packets to other pods of the bridge, tagged frames.
    batch.rule("pods", &[Expression::Drop]);
    put_output(batch, is(&IPV4), 1, 5);
    put_output(batch, is(&IPV6), 58, 137);
}

/// This machine forwards between the pods of the bridge. Redirects would make them send to each other directly.
fn put_output(batch: &mut Batch<'_>, is_family: [Expression<'static>; 2], protocol: u8, redirect: u8) {
    const CHAIN: &str = "output";
    if protocol == 1 {
        batch.create_chain(CHAIN, Some(Hook::filter(Hook::OUTPUT, 0)));
    }
    let [load, compare] = is_family;
    batch.rule(
        CHAIN,
        &[
            Expression::Load(Field::OutputName, NAME),
            Expression::In(NAME, PORTS),
            load,
            compare,
            Expression::Load(Field::TransportProtocol, REST),
            Expression::Equal(REST, &[protocol]),
            Expression::Load(Field::IcmpType, REST),
            Expression::Equal(REST, &[redirect]),
            Expression::Drop,
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_link_local_addresses() {
        let address = link_local([0x0a, 0x58, 0x0a, 0x2a, 0x00, 0x02]);
        assert_eq!(address.to_string(), "fe80::858:aff:fe2a:2");
    }

    #[test]
    fn every_address_is_an_element() {
        let ips = ["10.42.0.2", "fd00::2"].map(|ip| ip.parse().unwrap());
        let port = Port { name: "veth0", mac: [10, 88, 10, 42, 0, 2], gateway: [2, 0, 0, 0, 0, 1], ips: &ips };
        let elements = elements(&port, "me");
        let sets: Vec<&str> = elements.iter().map(|(set, _)| *set).collect();
        assert_eq!(sets, [PORTS, MACS, GATEWAYS, ADDRESSES4, ADDRESSES6, ADDRESSES6, ADDRESSES6]);
        assert_eq!(elements[1].1.key.len(), 24);
        assert!(elements.iter().all(|(_, element)| element.comment == "me"));
    }
}
