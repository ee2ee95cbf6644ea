//! The nftables table that the plugins share. A pod is an element of a map; rules and chains are created once.
//!
//! The elements jump to one chain per subnet. If an element is refused because the table or a chain is missing, both are
//! created in one transaction with the element. Concurrent callers do not create anything twice, because tables and
//! chains are created only if they do not exist.

use rustix::io::Errno;

use crate::cidr::IpNet;
use crate::netlink;
use crate::nft::{Batch, Data, Element, Expression, Family, Field, Hook, Kind, Nft, Register, Set, Side};

/// The table of networks whose configuration names no other.
pub(crate) const DEFAULT: &str = "tiphys-cni";
const FAMILY: Family = Family::Inet;

/// The names of the maps. [`SETS`] has their keys and values.
pub(crate) const MASQUERADE: [&str; 2] = ["masquerade4", "masquerade6"];
pub(crate) const HOST_PORTS: [&str; 2] = ["host-ports4", "host-ports6"];
pub(crate) const HOST_ADDRESSES: [&str; 2] = ["host-addresses4", "host-addresses6"];
pub(crate) const HAIRPIN: [&str; 2] = ["hairpin4", "hairpin6"];

/// Each map exists for IPv4 and IPv6, in this order.
const SETS: [Set<'static>; 8] = {
    use Kind::{Ipv4, Ipv6, Port, Protocol};
    [
        Set::verdicts(MASQUERADE[0], &[Ipv4]),
        Set::verdicts(MASQUERADE[1], &[Ipv6]),
        Set::map(HOST_PORTS[0], &[Protocol, Port], &[Ipv4, Port]),
        Set::map(HOST_PORTS[1], &[Protocol, Port], &[Ipv6, Port]),
        Set::map(HOST_ADDRESSES[0], &[Ipv4, Protocol, Port], &[Ipv4, Port]),
        Set::map(HOST_ADDRESSES[1], &[Ipv6, Protocol, Port], &[Ipv6, Port]),
        Set::verdicts(HAIRPIN[0], &[Protocol, Ipv4, Port, Port]),
        Set::verdicts(HAIRPIN[1], &[Protocol, Ipv6, Port, Port]),
    ]
};

/// How often a transaction is retried after a conflict.
const TRIES: usize = 16;

/// Deletes a table with all its contents, if it exists.
pub(crate) fn remove_table(name: &str) -> Result<(), netlink::Error> {
    let mut nft = Nft::open()?;
    if !nft.has_table(FAMILY, name)? {
        return Ok(());
    }
    let mut batch = Batch::new(FAMILY, name);
    batch.delete_table();
    batch.commit(&mut nft, "delete the table")
}

/// The table of a network: every cluster of a machine has its own.
pub(crate) struct Table<'a> {
    pub(crate) nft: &'a mut Nft,
    pub(crate) name: &'a str,
}

impl<'a> Table<'a> {
    fn batch(&self) -> Batch<'a> {
        Batch::new(FAMILY, self.name)
    }

    fn elements(&mut self, map: &str) -> Result<Vec<Element>, netlink::Error> {
        self.nft.elements(FAMILY, self.name, map)
    }
}

/// A chain of a subnet that elements jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubnetChain {
    /// Masquerades packets that leave the subnet.
    Masquerade(IpNet),
    /// Masquerades packets from the subnet or from the host's loopback, so that replies return through the host.
    Hairpin(IpNet),
}

impl SubnetChain {
    pub(crate) fn name(self) -> String {
        let (what, subnet) = match self {
            SubnetChain::Masquerade(subnet) => ("masquerade", subnet),
            SubnetChain::Hairpin(subnet) => ("hairpin", subnet),
        };
        // The nft command does not allow colons in names.
        format!("{what}-{subnet}").replace(':', "_")
    }

    fn put(self, batch: &mut Batch<'_>) {
        let name = self.name();
        batch.create_chain(&name, None);
        match self {
            SubnetChain::Masquerade(subnet) => {
                let multicast = if subnet.is_ipv4() { "224.0.0.0/4" } else { "ff00::/8" };
                for net in [Some(subnet), multicast.parse().ok()].into_iter().flatten() {
                    batch.match_net(&name, net, Side::Destination, Expression::Return);
                }
                batch.rule(&name, &[Expression::Masquerade]);
            }
            SubnetChain::Hairpin(subnet) => {
                let loopback = "127.0.0.0/8".parse().ok().filter(|_| subnet.is_ipv4());
                for net in [Some(subnet), loopback].into_iter().flatten() {
                    batch.match_net(&name, net, Side::Source, Expression::Masquerade);
                }
            }
        }
    }
}

/// Adds elements, and the chains that they jump to if they are missing. Elements that exist already are not an error.
pub(crate) fn add(
    table: &mut Table<'_>,
    chains: &[SubnetChain],
    elements: &[(&str, Element)],
) -> Result<(), netlink::Error> {
    let mut pending: Vec<&(&str, Element)> = elements.iter().collect();
    let mut last = None;
    for _ in 0..TRIES {
        let mut batch = table.batch();
        if last.is_some() {
            put_missing(table, &mut batch, chains)?;
        }
        pending.iter().for_each(|(map, element)| batch.create_elements(map, std::slice::from_ref(element)));
        match batch.commit(table.nft, "add elements to the table of pods") {
            // Something was missing, or a concurrent caller has just created it.
            Err(error) if error.is(Errno::NOENT) || error.is(Errno::EXIST) => last = Some(error),
            outcome => return outcome,
        }
        let mut left = Vec::new();
        for wanted in pending {
            if !is_in_place(table, wanted)? {
                left.push(wanted);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        pending = left;
    }
    last.map_or(Ok(()), Err)
}

/// Whether the element exists as desired. An existing host port with other data belongs to another pod and stays. An
/// address belongs to this pod alone, so that another element with the address is stale, and is removed.
fn is_in_place(table: &mut Table<'_>, (map, element): &(&str, Element)) -> Result<bool, netlink::Error> {
    let there = table.elements(map)?.into_iter().find(|there| there.key == element.key);
    match there {
        None => Ok(false),
        Some(there) if there == *element => Ok(true),
        Some(there) if MASQUERADE.contains(map) => remove(table, &[map], |found| *found == there).map(|()| false),
        Some(there) => {
            let what = format!("host port {} is taken by {:?}", host_port(&there.key), there.comment);
            Err(netlink::Error::new(what, Errno::EXIST))
        }
    }
}

/// The port is the last part of every key except those of masquerading.
fn host_port(key: &[u8]) -> u16 {
    key.last_chunk::<4>().map_or(0, |last| u16::from_be_bytes([last[0], last[1]]))
}

/// Removes the elements that match, if there are any.
pub(crate) fn remove(
    table: &mut Table<'_>,
    maps: &[&str],
    unwanted: impl Fn(&Element) -> bool,
) -> Result<(), netlink::Error> {
    let mut last = None;
    for _ in 0..TRIES {
        let mut batch = table.batch();
        for map in maps {
            let found: Vec<Element> = table.elements(map)?.into_iter().filter(&unwanted).collect();
            batch.delete_elements(map, &found);
        }
        if batch.is_empty() {
            return Ok(());
        }
        match batch.commit(table.nft, "remove elements from the table of pods") {
            Err(error) if error.is(Errno::NOENT) => last = Some(error),
            outcome => return outcome,
        }
    }
    last.map_or(Ok(()), Err)
}

/// Whether a map has an element of this owner.
pub(crate) fn has(table: &mut Table<'_>, maps: &[&str], owner: &str) -> Result<bool, netlink::Error> {
    for map in maps {
        if table.elements(map)?.iter().any(|element| element.comment == owner) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first map in which one of these elements is missing or different.
pub(crate) fn missing<'a>(
    table: &mut Table<'_>,
    wanted: &[(&'a str, Element)],
) -> Result<Option<&'a str>, netlink::Error> {
    for (map, element) in wanted {
        if !table.elements(map)?.contains(element) {
            return Ok(Some(map));
        }
    }
    Ok(None)
}

/// An element whose verdict jumps to a subnet's chain.
pub(crate) fn to_chain(key: Vec<u8>, chain: SubnetChain, owner: &str) -> Element {
    Element::new(key, Data::Jump(chain.name()), owner)
}

fn put_missing(table: &mut Table<'_>, batch: &mut Batch<'_>, chains: &[SubnetChain]) -> Result<(), netlink::Error> {
    let there = table.nft.has_table(FAMILY, table.name)?;
    if !there {
        put_table(batch);
    }
    let mut put: Vec<SubnetChain> = Vec::new();
    for chain in chains {
        let exists = put.contains(chain) || (there && table.nft.has_chain(FAMILY, table.name, &chain.name())?);
        if !exists {
            chain.put(batch);
            put.push(*chain);
        }
    }
    Ok(())
}

/// Creates everything that does not belong to a subnet.
fn put_table(batch: &mut Batch<'_>) {
    const DESTINATION_NAT: i32 = -100;
    const SOURCE_NAT: i32 = 100;
    batch.create_table();
    SETS.iter().for_each(|set| batch.create_set(set));
    batch.create_chain("host-ports", None);
    for (name, number) in [("prerouting", Hook::PREROUTING), ("output", Hook::OUTPUT)] {
        batch.create_chain(name, Some(Hook::nat(number, DESTINATION_NAT)));
        batch.rule(name, &to_this_machine());
    }
    batch.create_chain("postrouting", Some(Hook::nat(Hook::POSTROUTING, SOURCE_NAT)));
    for version in [IPV4, IPV6] {
        put_host_ports(batch, version);
        put_hairpin(batch, version);
    }
    for version in [IPV4, IPV6] {
        let verdict = Expression::Verdict(R0, MASQUERADE[version.index]);
        let [load, compare] = version.is();
        batch.rule("postrouting", &[load, compare, Expression::Load(version.source, R0), verdict]);
    }
}

const R0: Register = Register(0);
const R1: Register = Register(1);

/// The differences between IPv4 and IPv6.
#[derive(Clone, Copy)]
struct Version {
    index: usize,
    family: &'static [u8; 1],
    source: Field,
    destination: Field,
    /// The number of registers that an address occupies.
    width: u8,
}

const IPV4: Version = Version {
    index: 0,
    family: &[libc::AF_INET as u8],
    source: Field::Ipv4Source,
    destination: Field::Ipv4Destination,
    width: 1,
};
const IPV6: Version = Version {
    index: 1,
    family: &[libc::AF_INET6 as u8],
    source: Field::Ipv6Source,
    destination: Field::Ipv6Destination,
    width: 4,
};

impl Version {
    fn is(self) -> [Expression<'static>; 2] {
        [Expression::Load(Field::NetworkProtocol, R0), Expression::Equal(R0, self.family)]
    }

    fn nat(self) -> Expression<'static> {
        Expression::DestinationNat { family: self.family[0], address: R0, port: Register(self.width) }
    }
}

/// `fib daddr type local jump host-ports`
fn to_this_machine() -> [Expression<'static>; 3] {
    const LOCAL: &[u8] = &2u32.to_ne_bytes();
    [Expression::Load(Field::DestinationType, R0), Expression::Equal(R0, LOCAL), Expression::Jump("host-ports")]
}

/// A port on one host address takes precedence over a port on all addresses.
fn put_host_ports(batch: &mut Batch<'_>, version: Version) {
    let [load, compare] = version.is();
    let (protocol, port) = (Register(version.width), Register(version.width + 1));
    batch.rule(
        "host-ports",
        &[
            load,
            compare,
            Expression::Load(version.destination, R0),
            Expression::Load(Field::TransportProtocol, protocol),
            Expression::Load(Field::DestinationPort, port),
            Expression::Map(R0, HOST_ADDRESSES[version.index], R0),
            version.nat(),
        ],
    );
    let [load, compare] = version.is();
    batch.rule(
        "host-ports",
        &[
            load,
            compare,
            Expression::Load(Field::TransportProtocol, R0),
            Expression::Load(Field::DestinationPort, R1),
            Expression::Map(R0, HOST_PORTS[version.index], R0),
            version.nat(),
        ],
    );
}

/// Matches only connections through a host port; the original destination port is part of the key.
fn put_hairpin(batch: &mut Batch<'_>, version: Version) {
    const DESTINATION_NATTED: &[u8] = &0x20u32.to_ne_bytes();
    const NONE: &[u8] = &0u32.to_ne_bytes();
    let [load, compare] = version.is();
    let (port, original) = (Register(1 + version.width), Register(2 + version.width));
    batch.rule(
        "postrouting",
        &[
            load,
            compare,
            Expression::Load(Field::ConnectionStatus, R0),
            Expression::Mask(R0, DESTINATION_NATTED),
            Expression::NotEqual(R0, NONE),
            Expression::Load(Field::TransportProtocol, R0),
            Expression::Load(version.destination, R1),
            Expression::Load(Field::DestinationPort, port),
            Expression::Load(Field::OriginalPort, original),
            Expression::Verdict(R0, HAIRPIN[version.index]),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chains() {
        assert_eq!(SubnetChain::Masquerade("fd00::/64".parse().unwrap()).name(), "masquerade-fd00__/64");
    }
}
