//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{Message, attribute, u32_of};
use super::socket::{CREATE, EXCL};
use super::{Error, Reply, Rtnl};
use crate::cidr::{IpNet, from_octets, octets};

const NEWROUTE: u16 = 24;
const DELROUTE: u16 = 25;
const GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTMSG: usize = 12;
const TABLE_MAIN: u32 = 254;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const PROTOCOL_BOOT: u8 = 3;
const UNICAST: u8 = 1;
const ONLINK: u32 = 4;

/// A unicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub to: IpNet,
    pub gateway: Option<IpAddr>,
    pub device: u32,
    pub mtu: Option<u32>,
    pub advmss: Option<u32>,
    pub priority: Option<u32>,
    /// The main table if None.
    pub table: Option<u32>,
    /// If None, "link" for a route without a gateway, and "universe" otherwise.
    pub scope: Option<u8>,
    /// Which program the route is from, so that it finds its own again; "boot" if None.
    pub protocol: Option<u8>,
    /// Whether the gateway is on the link of the device, even without an address of the device in its network.
    pub onlink: bool,
}

impl Route {
    /// A route with default options.
    pub fn new(to: IpNet, gateway: Option<IpAddr>, device: u32) -> Route {
        Route {
            to,
            gateway,
            device,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
            protocol: None,
            onlink: false,
        }
    }
}

impl Rtnl {
    /// Fails with EEXIST if the route exists.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        self.0.request(format!("add the route to {}", route.to), message(NEWROUTE, CREATE | EXCL, route))
    }

    /// Fails with ESRCH if there is no such route.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        self.0.request(format!("delete the route to {}", route.to), message(DELROUTE, 0, route))
    }

    /// The unicast routes of a device, in all tables.
    pub fn routes(&mut self, device: u32) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
            let mut header = [0; RTMSG];
            header[0] = family;
            let replies = self.0.dump("list routes", || Message::new(GETROUTE, 0, &header))?;
            routes.extend(replies.iter().filter_map(parse).filter(|route| route.device == device));
        }
        Ok(routes)
    }

    /// The device through which packets to an address leave.
    pub fn device_to(&mut self, address: IpAddr) -> Result<Option<u32>, Error> {
        let mut header = [0; RTMSG];
        (header[0], header[1]) = (family(address), IpNet::host(address).prefix());
        let mut message = Message::new(GETROUTE, 0, &header);
        message.put(RTA_DST, &octets(address));
        let reply = self.0.get(format!("look for the route to {address}"), message)?;
        Ok(reply.and_then(|reply| attribute(reply.payload.get(RTMSG..)?, RTA_OIF).and_then(u32_of)))
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn message(kind: u16, flags: u16, route: &Route) -> Message {
    let to = route.to.network();
    let scope = route.scope.unwrap_or(if route.gateway.is_some() { SCOPE_UNIVERSE } else { SCOPE_LINK });
    let mut header = [0; RTMSG];
    (header[0], header[1]) = (family(to.address), to.prefix());
    // A table number above 255 is only in its attribute.
    header[4] = u8::try_from(route.table.unwrap_or(TABLE_MAIN)).unwrap_or(0);
    // IPv6 has no scopes.
    header[5] = route.protocol.unwrap_or(PROTOCOL_BOOT);
    (header[6], header[7]) = (if to.is_ipv4() { scope } else { SCOPE_UNIVERSE }, UNICAST);
    if route.onlink {
        header[8..12].copy_from_slice(&ONLINK.to_ne_bytes());
    }
    let mut message = Message::new(kind, flags, &header);
    message.put(RTA_DST, &octets(to.address));
    message.put_u32(RTA_OIF, route.device);
    message.put_u32(RTA_TABLE, route.table.unwrap_or(TABLE_MAIN));
    if let Some(gateway) = route.gateway {
        message.put(RTA_GATEWAY, &octets(gateway));
    }
    if let Some(priority) = route.priority {
        message.put_u32(RTA_PRIORITY, priority);
    }
    let metrics = [(RTAX_MTU, route.mtu), (RTAX_ADVMSS, route.advmss)];
    if metrics.iter().any(|(_, value)| value.is_some()) {
        message.nest(RTA_METRICS, |nest| {
            metrics.iter().filter_map(|(kind, value)| Some((*kind, (*value)?))).for_each(|(k, v)| nest.put_u32(k, v));
        });
    }
    message
}

fn parse(reply: &Reply) -> Option<Route> {
    let header = reply.payload.get(..RTMSG)?;
    let attributes = reply.payload.get(RTMSG..)?;
    let number = |kind| attribute(attributes, kind).and_then(u32_of);
    let anywhere: IpAddr =
        if header[0] == libc::AF_INET as u8 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let to = attribute(attributes, RTA_DST).map_or(Some(anywhere), from_octets)?;
    let metric = |kind| attribute(attributes, RTA_METRICS).and_then(|nest| attribute(nest, kind)).and_then(u32_of);
    (header[7] == UNICAST).then_some(())?;
    Some(Route {
        to: IpNet::new(to, header[1])?,
        gateway: attribute(attributes, RTA_GATEWAY).and_then(from_octets),
        device: number(RTA_OIF)?,
        mtu: metric(RTAX_MTU),
        advmss: metric(RTAX_ADVMSS),
        priority: number(RTA_PRIORITY),
        table: number(RTA_TABLE),
        scope: Some(header[6]),
        protocol: Some(header[5]),
        onlink: u32_of(header.get(8..12)?)? & ONLINK != 0,
    })
}
