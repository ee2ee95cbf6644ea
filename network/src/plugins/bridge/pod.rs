//! The pod's side: addresses and routes, through a socket in the pod's namespace.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::cidr::IpNet;
use crate::netlink::{self, Link, Rtnl};
use crate::ns::Netns;
use crate::spec::error::Error;
use crate::spec::result::{AddResult, Route};
use crate::{fault, sysctl};

pub(super) fn configure(netns: &Netns, ifname: &str, attachment: &AddResult, is_routed: bool) -> Result<Link, Error> {
    let ipv6 = attachment.ips.iter().any(|ip| !ip.address.is_ipv4());
    let mut rtnl = netns.run(|| {
        if ipv6 {
            sysctl::set(&format!("ipv6/conf/{ifname}/disable_ipv6"), "0")?;
            // Its routes are those of the attachment, not those that a neighbour announces.
            sysctl::set(&format!("ipv6/conf/{ifname}/accept_ra"), "0")?;
        }
        Ok(Rtnl::open())
    })??;
    let missing = || Error::internal(format!("{ifname:?} disappeared after it was created"));
    let link = rtnl.link(ifname)?.ok_or_else(missing)?;
    rtnl.set_up(link.index)?;
    for ip in &attachment.ips {
        match ip.gateway.filter(|_| is_routed) {
            Some(gateway) => {
                rtnl.add_address_without_route(link.index, ip.address)?;
                rtnl.add_route(&netlink::Route::new(IpNet::host(gateway), None, link.index))?;
            }
            None => rtnl.add_address(link.index, ip.address)?,
        }
    }
    fault::point("bridge.addresses-set")?;
    for route in &attachment.routes {
        match rtnl.add_route(&resolve(route, attachment, link.index)?) {
            Err(error) if error.is(Errno::EXIST) => {}
            outcome => outcome?,
        }
    }
    fault::point("bridge.routes-set")?;
    Ok(link)
}

/// A route without a gateway uses the gateway of the first address of its family.
pub(super) fn resolve(route: &Route, attachment: &AddResult, device: u32) -> Result<netlink::Route, Error> {
    let of_family = |address: &IpNet| address.is_ipv4() == route.to.is_ipv4();
    let default = attachment.ips.iter().filter(|ip| of_family(&ip.address)).find_map(|ip| ip.gateway);
    // A route with link scope has no gateway.
    const SCOPE_LINK: u32 = 253;
    let gateway: Option<IpAddr> = route.gateway.or(default.filter(|_| route.scope != Some(SCOPE_LINK)));
    let scope = route.scope.map(u8::try_from).transpose();
    let scope = scope
        .map_err(|_| Error::configuration(format!("the scope of the route to {} has more than 8 bits", route.to)))?;
    Ok(netlink::Route {
        mtu: route.mtu,
        advmss: route.advmss,
        priority: route.priority,
        table: route.table,
        scope,
        ..netlink::Route::new(route.to, gateway, device)
    })
}
