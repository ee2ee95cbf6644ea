//! CHECK: compares the state of the host and the pod with the result of ADD.

use super::conf::Conf;
use super::{ipam, masquerade, pod};
use crate::netlink::{Link, Rtnl, mac_text};
use crate::plugins::Call;
use crate::plugins::guard;
use crate::spec::command::Verb;
use crate::spec::error::Error;
use crate::spec::result::{AddResult, Interface};

pub(super) fn check(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let previous = call.chained()?;
    ipam::delegate(call, Verb::Check)?;
    check_host(&conf, &previous)?;
    check_pod(call, &previous)?;
    if conf.masquerade && !call.table(|table| masquerade::exists(table, &call.owner()))? {
        return Err(Error::internal("the masquerading rules of the pod's addresses are missing"));
    }
    if conf.routed && !call.table(|table| guard::exists(table, &call.owner()))? {
        return Err(Error::internal("the source checks of the pod's port are missing"));
    }
    Ok(())
}

fn check_host(conf: &Conf, previous: &AddResult) -> Result<(), Error> {
    let mut rtnl = Rtnl::open()?;
    let bridge = rtnl.link(&conf.bridge)?.filter(|link| link.up && link.kind.as_deref() == Some("bridge"));
    let bridge = bridge.ok_or_else(|| Error::internal(format!("the bridge {} is missing or down", conf.bridge)))?;
    let port = previous.interfaces.iter().find(|known| known.sandbox.is_empty() && known.name != conf.bridge);
    let port = port.ok_or_else(|| Error::internal("prevResult: the host's end is missing"))?;
    let found = find(&mut rtnl, port)?;
    match found.master {
        Some(master) if master == bridge.index => Ok(()),
        _ => Err(Error::internal(format!("{} is not attached to the bridge {}", port.name, conf.bridge))),
    }
}

fn check_pod(call: &Call<'_>, previous: &AddResult) -> Result<(), Error> {
    let ifname = call.target.ifname;
    let known = previous.in_sandbox(ifname);
    let known = known.ok_or_else(|| Error::internal(format!("prevResult: the interface {ifname} is missing")))?;
    if known.sandbox != call.target.netns {
        return Err(Error::internal(format!("prevResult: the sandbox of {ifname} is not {}", call.target.netns)));
    }
    let mut rtnl = Rtnl::open_in(&call.netns()?)?;
    let link = find(&mut rtnl, known)?;
    let addresses = rtnl.addresses(link.index)?;
    for ip in previous.ips_of(ifname) {
        if !addresses.iter().any(|address| address.net == ip.address) {
            return Err(Error::internal(format!("{ifname} has lost the address {}", ip.address)));
        }
    }
    let routes = rtnl.routes(link.index)?;
    for route in &previous.routes {
        let desired = pod::resolve(route, previous, link.index)?;
        if !routes.iter().any(|found| found.to == desired.to && found.gateway == desired.gateway) {
            return Err(Error::internal(format!("{ifname} has lost the route to {}", route.to)));
        }
    }
    Ok(())
}

fn find(rtnl: &mut Rtnl, known: &Interface) -> Result<Link, Error> {
    let found = rtnl.link(&known.name)?.filter(|link| known.mac.is_empty() || mac_text(link.mac) == known.mac);
    found.ok_or_else(|| {
        Error::internal(format!("the interface {} with the address {} is missing", known.name, known.mac))
    })
}
