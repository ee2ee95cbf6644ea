//! `portmap`: forwards host ports to a pod.

use std::net::IpAddr;

use serde_json::Value;

use super::table::{self, HAIRPIN, HOST_ADDRESSES, HOST_PORTS, SubnetChain};
use super::{COMMON, Call, Plugin};
use crate::cidr::{IpNet, octets};
use crate::netlink::{Conntrack, Rtnl};
use crate::nft::{Data, Element};
use crate::spec::error::Error;
use crate::spec::reader::Reader;
use crate::spec::result::AddResult;
use crate::{fault, sysctl};

pub(crate) const PLUGIN: Plugin = Plugin { name: "portmap", accepts, add, del, check, gc, status: no_op };

#[derive(Debug, PartialEq)]
struct Conf {
    /// Whether connections from the pod's own subnet and from the host's loopback should work too.
    snat: bool,
    mappings: Vec<Mapping>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mapping {
    protocol: u8,
    host_port: u16,
    container_port: u16,
    /// One of the host's addresses; None for all addresses.
    host_ip: Option<IpAddr>,
    /// The address family that a host IP restricts the mapping to: IPv4 or not.
    only_ipv4: Option<bool>,
}

const MAPS: [&str; 6] = [HOST_PORTS[0], HOST_PORTS[1], HOST_ADDRESSES[0], HOST_ADDRESSES[1], HAIRPIN[0], HAIRPIN[1]];

impl Conf {
    fn read(conf: &Value) -> Result<Conf, Error> {
        const UNSUPPORTED: &str = "is not supported by the built-in portmap plugin";
        let mut reader = Reader::new(conf, "")?;
        reader.skip(COMMON);
        reader.skip(&["ipam", "dns", "args"]);
        for key in ["conditionsV4", "conditionsV6"] {
            if !reader.list(key)?.is_empty() {
                return Err(reader.unsupported(key, UNSUPPORTED));
            }
        }
        // The built-in plugin does not use marks.
        reader.number("markMasqBit")?;
        if reader.flag("masqAll")? {
            return Err(reader.unsupported("masqAll", UNSUPPORTED));
        }
        if !reader.text("externalSetMarkChain")?.is_empty() {
            return Err(reader.unsupported("externalSetMarkChain", UNSUPPORTED));
        }
        match reader.text("backend")? {
            "" | "nftables" => {}
            "iptables" => return Err(reader.unsupported("backend", UNSUPPORTED)),
            other => return Err(reader.invalid("backend", format!("{other:?} is neither iptables nor nftables"))),
        }
        let snat = reader.optional_flag("snat")?.unwrap_or(true);
        let mappings = match reader.object("runtimeConfig")? {
            Some(mut runtime) => read_mappings(&mut runtime)?,
            None => Vec::new(),
        };
        reader.finish()?;
        Ok(Conf { snat, mappings })
    }
}

fn read_mappings(runtime: &mut Reader<'_>) -> Result<Vec<Mapping>, Error> {
    let list = runtime.list("portMappings")?.iter().enumerate();
    list.map(|(index, value)| read_mapping(Reader::new(value, format!("runtimeConfig.portMappings[{index}]"))?))
        .collect()
}

fn read_mapping(mut reader: Reader<'_>) -> Result<Mapping, Error> {
    let mut port = |key| {
        let number = reader.number(key)?.unwrap_or(0);
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        port.ok_or_else(|| reader.invalid(key, format!("{number} is not a port")))
    };
    let (host_port, container_port) = (port("hostPort")?, port("containerPort")?);
    let protocol = match reader.text("protocol")?.to_ascii_lowercase().as_str() {
        "" | "tcp" => libc::IPPROTO_TCP as u8,
        "udp" => libc::IPPROTO_UDP as u8,
        "sctp" => libc::IPPROTO_SCTP as u8,
        other => return Err(reader.invalid("protocol", format!("{other:?} is neither tcp, udp nor sctp"))),
    };
    let host_ip: Option<IpAddr> = reader.parsed("hostIP", "an address")?;
    Ok(Mapping {
        protocol,
        host_port,
        container_port,
        host_ip: host_ip.filter(|address| !address.is_unspecified()),
        only_ipv4: host_ip.map(|address| address.is_ipv4()),
    })
}

fn accepts(conf: &Value) -> Result<(), Error> {
    Conf::read(conf).map(|_| ())
}

fn add(call: &Call<'_>) -> Result<AddResult, Error> {
    let conf = Conf::read(call.conf)?;
    let previous = call.chained()?;
    let addresses = pod_addresses(&previous);
    let (chains, elements) = plan(&conf, &addresses, &call.owner());
    if elements.is_empty() {
        return Ok(previous);
    }
    if conf.snat {
        allow_loopback(&addresses)?;
    }
    let added =
        call.table(|table| table::add(table, &chains, &elements)).and_then(|()| delete_udp_flows(&conf, &addresses));
    added.and_then(|()| Ok(fault::point("portmap.ports-set")?)).inspect_err(|error| {
        if let Err(left) = del(call) {
            tracing::warn!(%error, %left, "failed to undo a failed ADD");
        }
    })?;
    Ok(previous)
}

/// The first address of each family in the pod.
fn pod_addresses(previous: &AddResult) -> Vec<IpNet> {
    let inside = |index: usize| previous.interfaces.get(index).is_some_and(|interface| !interface.sandbox.is_empty());
    let candidates = || previous.ips.iter().filter(|ip| ip.interface.is_none_or(inside)).map(|ip| ip.address);
    let first = |ipv4: bool| candidates().find(|address| address.is_ipv4() == ipv4);
    [first(true), first(false)].into_iter().flatten().collect()
}

/// The elements to add, each with its map, and the chains that they jump to.
fn plan(conf: &Conf, addresses: &[IpNet], owner: &str) -> (Vec<SubnetChain>, Vec<(&'static str, Element)>) {
    let (mut chains, mut elements) = (Vec::new(), Vec::new());
    for address in addresses {
        let of_family = |mapping: &&Mapping| mapping.only_ipv4.is_none_or(|only_ipv4| only_ipv4 == address.is_ipv4());
        let index = usize::from(!address.is_ipv4());
        for mapping in conf.mappings.iter().filter(of_family) {
            elements.push(forward(mapping, address, index, owner));
            if conf.snat {
                let chain = SubnetChain::Hairpin(address.network());
                elements.push((HAIRPIN[index], table::to_chain(hairpin_key(mapping, address), chain, owner)));
                chains.push(chain);
            }
        }
    }
    chains.dedup();
    (chains, elements)
}

fn forward(mapping: &Mapping, address: &IpNet, index: usize, owner: &str) -> (&'static str, Element) {
    let to = Element::join(&[&octets(address.address), &mapping.container_port.to_be_bytes()]);
    let port = mapping.host_port.to_be_bytes();
    let (map, key) = match mapping.host_ip {
        Some(host_ip) => (HOST_ADDRESSES[index], Element::join(&[&octets(host_ip), &[mapping.protocol], &port])),
        None => (HOST_PORTS[index], Element::join(&[&[mapping.protocol], &port])),
    };
    (map, Element::new(key, Data::Value(to), owner))
}

fn hairpin_key(mapping: &Mapping, address: &IpNet) -> Vec<u8> {
    let (to, from) = (mapping.container_port.to_be_bytes(), mapping.host_port.to_be_bytes());
    Element::join(&[&[mapping.protocol], &octets(address.address), &to, &from])
}

/// Deletes tracked UDP flows: a client that has sent to the port before would stay with the old destination.
fn delete_udp_flows(conf: &Conf, addresses: &[IpNet]) -> Result<(), Error> {
    let udp = conf.mappings.iter().filter(|mapping| mapping.protocol == libc::IPPROTO_UDP as u8);
    let ports: Vec<u16> = udp.map(|mapping| mapping.host_port).collect();
    if ports.is_empty() {
        return Ok(());
    }
    let mut conntrack = Conntrack::open()?;
    for address in addresses {
        conntrack.delete_matching(address.is_ipv4(), |flow| {
            flow.protocol == libc::IPPROTO_UDP as u8 && ports.contains(&flow.port)
        })?;
    }
    Ok(())
}

/// Allows packets from 127.0.0.1 to leave through the device that leads to the pod.
fn allow_loopback(addresses: &[IpNet]) -> Result<(), Error> {
    let Some(ipv4) = addresses.iter().find(|address| address.is_ipv4()) else { return Ok(()) };
    let mut rtnl = Rtnl::open()?;
    let device = rtnl.device_to(ipv4.address)?.map(|index| rtnl.link_at(index)).transpose()?.flatten();
    match device {
        Some(device) => Ok(sysctl::set(&format!("ipv4/conf/{}/route_localnet", device.name), "1")?),
        None => Err(Error::internal(format!("no route to the pod's address {}", ipv4.address))),
    }
}

fn del(call: &Call<'_>) -> Result<(), Error> {
    let owner = call.owner();
    call.table(|table| table::remove(table, &MAPS, |element| element.comment == owner))
}

fn check(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let previous = call.chained()?;
    let (_, desired) = plan(&conf, &pod_addresses(&previous), &call.owner());
    match call.table(|table| table::missing(table, &desired))? {
        Some(map) => Err(Error::internal(format!("a host port is missing in {map}"))),
        None => Ok(()),
    }
}

fn gc(call: &Call<'_>) -> Result<(), Error> {
    let network = call.network();
    let owners: Vec<String> = call.valid()?.iter().map(|(id, ifname)| super::owner(id, ifname, network)).collect();
    let of_network = |comment: &str| comment.split(' ').nth(2) == Some(network);
    let matches = |element: &Element| of_network(&element.comment) && !owners.contains(&element.comment);
    call.table(|table| table::remove(table, &MAPS, matches))
}

fn no_op(_: &Call<'_>) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mappings: Value) -> Result<Conf, String> {
        Conf::read(&json!({ "runtimeConfig": { "portMappings": mappings } })).map_err(|error| error.message)
    }

    #[test]
    fn mappings_and_maps() {
        let conf = read(json!([
            { "hostPort": 8080, "containerPort": 80, "protocol": "TCP" },
            { "hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": "192.0.2.1" },
            { "hostPort": 54, "containerPort": 54, "hostIP": "::" },
        ]));
        let addresses = ["10.1.0.2/16".parse().unwrap(), "fd00::2/64".parse().unwrap()];
        let (chains, elements) = plan(&conf.unwrap(), &addresses, "me");
        let maps: Vec<&str> = elements.iter().map(|(map, _)| *map).collect();
        assert_eq!(
            maps,
            [
                "host-ports4",
                "hairpin4",
                "host-addresses4",
                "hairpin4",
                "host-ports6",
                "hairpin6",
                "host-ports6",
                "hairpin6"
            ]
        );
        assert_eq!(chains.len(), 2);
        assert_eq!(elements[0].1.key, [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(elements[0].1.data, Data::Value(vec![10, 1, 0, 2, 0, 80, 0, 0]));
        assert_eq!(elements[2].1.key, [192, 0, 2, 1, 17, 0, 0, 0, 0, 53, 0, 0]);
        assert_eq!(elements[1].1.key, [6, 0, 0, 0, 10, 1, 0, 2, 0, 80, 0, 0, 0x1f, 0x90, 0, 0]);
    }

    #[test]
    fn errors_name_the_field() {
        let path = "runtimeConfig.portMappings[0]";
        for (mapping, message) in [
            (json!({ "containerPort": 80 }), "hostPort: 0 is not a port"),
            (json!({ "hostPort": 70_000, "containerPort": 80 }), "hostPort: 70000 is not a port"),
            (
                json!({ "hostPort": 1, "containerPort": 80, "protocol": "icmp" }),
                "protocol: \"icmp\" is neither tcp, udp nor sctp",
            ),
            (json!({ "hostPort": 1, "containerPort": 80, "hostIP": "x" }), "hostIP: \"x\" is not an address"),
        ] {
            assert_eq!(read(json!([mapping])).unwrap_err(), format!("{path}.{message}"));
        }
        let refused = Conf::read(&json!({ "conditionsV4": ["!", "-d", "192.0.2.0/24"] })).unwrap_err();
        assert_eq!(refused.message, "conditionsV4: is not supported by the built-in portmap plugin");
        assert!(
            Conf::read(&json!({ "snat": false, "conditionsV4": [], "markMasqBit": 5 })).is_ok_and(|conf| !conf.snat)
        );
    }
}
