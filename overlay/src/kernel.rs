//! Applies a plan to the kernel: the VXLAN device, and routes, neighbours and forwarding entries for each other node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use network::netlink::{Error as NetlinkError, Forwarding, Link, Mac, Neighbour, Route, Rtnl, Vxlan};
use rustix::io::Errno;
use stdx::cidr::IpNet;

use crate::config::{Backend, Config};
use crate::model::{Endpoint, own_mac};
use crate::plan::{Hop, Plan};

/// Marks our routes: those of other programs on the same device stay.
const PROTOCOL: u8 = 84;
const MAIN_TABLE: u32 = 254;

/// Why the kernel does not have the routes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No device has the node's address.
    #[error("no device of this machine has the node's address {0}")]
    NoDevice(IpAddr),
    /// Another program has a VXLAN device with the same identifier.
    #[error("another device uses VNI {vni} and UDP port {port}: is another overlay network running on this machine?")]
    Taken {
        /// The identifier.
        vni: u32,
        /// The UDP port.
        port: u16,
    },
    /// The kernel refuses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A sysctl cannot be set.
    #[error(transparent)]
    Sysctl(#[from] std::io::Error),
}

/// The name of the VXLAN device of a family, which belongs to a bridge of pods.
pub fn device_name(bridge: &str, is_ipv4: bool) -> String {
    if is_ipv4 { format!("{bridge}-vx") } else { format!("{bridge}-vx6") }
}

/// Deletes the routes to other nodes in the network namespace of the calling thread.
pub fn cleanup(bridge: &str, pod_cidrs: &[IpNet]) -> Result<(), NetlinkError> {
    remove(&mut Rtnl::open()?, bridge, pod_cidrs)
}

/// Deletes the VXLAN devices with their routes and entries. Plain routes are deleted where they lead to a range of pods.
pub(crate) fn remove(rtnl: &mut Rtnl, bridge: &str, pod_cidrs: &[IpNet]) -> Result<(), NetlinkError> {
    for is_ipv4 in [true, false] {
        rtnl.delete_link(&device_name(bridge, is_ipv4))?;
    }
    for link in rtnl.links()? {
        for route in rtnl.routes(link.index)? {
            if is_ours(&route) && pod_cidrs.iter().any(|range| range.contains_net(&route.to)) {
                rtnl.delete_route(&route)?;
            }
        }
    }
    Ok(())
}

fn is_ours(route: &Route) -> bool {
    route.protocol == Some(PROTOCOL) && route.table.is_none_or(|table| table == MAIN_TABLE)
}

/// The device that has an address of this machine.
pub fn device_of(rtnl: &mut Rtnl, address: IpAddr) -> Result<(Link, IpNet), Error> {
    for link in rtnl.links()? {
        let found = rtnl.addresses(link.index)?.into_iter().find(|known| known.net.address == address);
        if let Some(found) = found {
            return Ok((link, found.net));
        }
    }
    Err(Error::NoDevice(address))
}

/// The node's own side of a family.
#[derive(Clone, Debug)]
pub struct Local {
    /// The device that has the node's address.
    pub link: Link,
    /// The node's address, with the prefix of its link.
    pub net: IpNet,
}

impl Local {
    /// Finds the device that has the node's address.
    pub fn find(rtnl: &mut Rtnl, host: IpAddr) -> Result<Local, Error> {
        device_of(rtnl, host).map(|(link, net)| Local { link, net })
    }
}

/// Applies the plan of one family. What is already there stays untouched, so that no connection is interrupted.
pub fn apply(
    rtnl: &mut Rtnl,
    config: &Config,
    (node, bridge): (&str, &str),
    local: &Local,
    own: &Endpoint,
    plan: &Plan,
) -> Result<(), Error> {
    let is_ipv4 = own.pod_cidr.is_ipv4();
    let forwarding = if is_ipv4 { "ipv4/ip_forward" } else { "ipv6/conf/all/forwarding" };
    network::sysctl::set(forwarding, "1")?;
    let name = device_name(bridge, is_ipv4);
    let device = match config.backend {
        Backend::HostGw => {
            rtnl.delete_link(&name)?;
            None
        }
        Backend::Vxlan { vni, port, .. } => {
            let desired = Vxlan { vni, port, local: own.host, device: local.link.index };
            let mtu = local.link.mtu.saturating_sub(config.overhead(is_ipv4));
            Some(ensure_device(rtnl, &name, &desired, own_mac(node, vni, is_ipv4), mtu)?)
        }
    };
    if let Some(device) = device {
        ensure_address(rtnl, device, own.pod_cidr)?;
        apply_neighbours(rtnl, device, plan)?;
        apply_forwardings(rtnl, device, plan)?;
    }
    apply_routes(rtnl, config, device, local, plan, is_ipv4)
}

/// A device with another configuration is replaced.
fn ensure_device(rtnl: &mut Rtnl, name: &str, desired: &Vxlan, mac: Mac, mtu: u32) -> Result<u32, Error> {
    if let Some(link) = rtnl.link(name)? {
        if rtnl.vxlan(name)?.as_ref() == Some(desired) && link.mac == mac && link.mtu == mtu {
            if !link.up {
                rtnl.set_up(link.index)?;
            }
            return Ok(link.index);
        }
        rtnl.delete_link(name)?;
    }
    match rtnl.add_vxlan(name, desired, mac, mtu) {
        Err(error) if error.is(Errno::EXIST) => return Err(Error::Taken { vni: desired.vni, port: desired.port }),
        created => created?,
    }
    // Addresses of links are not used: nodes know each other from the API.
    let _ = network::sysctl::set(&format!("ipv6/conf/{name}/accept_ra"), "0");
    rtnl.link(name)?.map(|link| link.index).ok_or(Error::NoDevice(desired.local))
}

/// The first address of the node's range, from which the node itself sends to pods of other nodes.
fn ensure_address(rtnl: &mut Rtnl, device: u32, pod_cidr: IpNet) -> Result<(), Error> {
    let desired = IpNet::host(pod_cidr.network().address);
    let known = rtnl.addresses(device)?;
    for other in known.iter().filter(|address| !address.link_local && address.net != desired) {
        rtnl.delete_address(device, other.net)?;
    }
    if !known.iter().any(|address| address.net == desired) {
        rtnl.add_address(device, desired)?;
    }
    Ok(())
}

fn vxlan_hops(plan: &Plan) -> impl Iterator<Item = (IpAddr, Mac, IpAddr)> + '_ {
    plan.hops.iter().filter_map(|(cidr, hop)| match hop {
        Hop::Vxlan { mac, host } => Some((cidr.network().address, *mac, *host)),
        Hop::Direct { .. } => None,
    })
}

fn apply_neighbours(rtnl: &mut Rtnl, device: u32, plan: &Plan) -> Result<(), Error> {
    let desired: BTreeMap<IpAddr, Mac> = vxlan_hops(plan).map(|(gateway, mac, _)| (gateway, mac)).collect();
    let known: BTreeMap<IpAddr, Mac> =
        rtnl.neighbours(device)?.into_iter().map(|known| (known.address, known.mac)).collect();
    for address in known.keys().filter(|address| !address.is_multicast() && !desired.contains_key(address)) {
        ignore_missing(rtnl.delete_neighbour(device, *address))?;
    }
    for (address, mac) in desired.iter().filter(|(address, mac)| known.get(address) != Some(mac)) {
        rtnl.set_neighbour(&Neighbour { device, address: *address, mac: *mac })?;
    }
    Ok(())
}

fn apply_forwardings(rtnl: &mut Rtnl, device: u32, plan: &Plan) -> Result<(), Error> {
    let desired: Vec<Forwarding> = vxlan_hops(plan).map(|(_, mac, host)| Forwarding { mac, host }).collect();
    let known = rtnl.forwardings(device)?;
    for entry in known.iter().filter(|entry| !desired.contains(entry)) {
        ignore_missing(rtnl.delete_forwarding(device, entry))?;
    }
    for entry in desired.iter().filter(|entry| !known.contains(entry)) {
        rtnl.set_forwarding(device, entry)?;
    }
    Ok(())
}

fn apply_routes(
    rtnl: &mut Rtnl,
    config: &Config,
    overlay: Option<u32>,
    local: &Local,
    plan: &Plan,
    is_ipv4: bool,
) -> Result<(), Error> {
    let to_route = |(cidr, hop): (&IpNet, &Hop)| match hop {
        Hop::Vxlan { .. } => overlay.map(|device| Route {
            onlink: true,
            protocol: Some(PROTOCOL),
            ..Route::new(*cidr, Some(cidr.network().address), device)
        }),
        Hop::Direct { host } => {
            Some(Route { protocol: Some(PROTOCOL), ..Route::new(*cidr, Some(*host), local.link.index) })
        }
    };
    let desired: Vec<Route> = plan.hops.iter().filter_map(to_route).collect();
    let is_same =
        |one: &Route, other: &Route| (one.to, one.gateway, one.device) == (other.to, other.gateway, other.device);
    let mut known = Vec::new();
    for device in overlay.into_iter().chain([local.link.index]) {
        let of_device = rtnl.routes(device)?.into_iter();
        known.extend(
            of_device.filter(|route| {
                is_ours(route) && route.to.is_ipv4() == is_ipv4 && config.range_of(&route.to).is_some()
            }),
        );
    }
    for route in known.iter().filter(|route| !desired.iter().any(|other| is_same(other, route))) {
        ignore_missing(rtnl.delete_route(route))?;
    }
    for route in desired.iter().filter(|route| !known.iter().any(|other| is_same(other, route))) {
        rtnl.add_route(route)?;
    }
    Ok(())
}

/// Another process may have deleted it meanwhile.
fn ignore_missing(outcome: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match outcome {
        Err(error) if error.is(Errno::SRCH) || error.is(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}
