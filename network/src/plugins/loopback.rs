//! `loopback`: sets up the pod's loopback interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::{COMMON, Call, Plugin};
use crate::cidr::IpNet;
use crate::netlink::{Link, Rtnl, mac_text};
use crate::spec::error::Error;
use crate::spec::reader::Reader;
use crate::spec::result::{AddResult, Interface, Ip};

pub(crate) const PLUGIN: Plugin = Plugin { name: "loopback", accepts, add, del, check, gc: no_op, status: no_op };

const NAME: &str = "lo";

fn accepts(conf: &Value) -> Result<(), Error> {
    let mut reader = Reader::new(conf, "")?;
    reader.skip(COMMON);
    reader.skip(&["ipam", "dns", "args", "runtimeConfig"]);
    reader.finish()
}

fn add(call: &Call<'_>) -> Result<AddResult, Error> {
    let mut rtnl = Rtnl::open_in(&call.netns()?)?;
    let link = find(&mut rtnl)?;
    rtnl.set_up(link.index)?;
    if let Some(previous) = call.previous()? {
        return Ok(previous);
    }
    let interface = Interface {
        name: NAME.to_string(),
        mac: mac_text(link.mac),
        sandbox: call.target.netns.to_string(),
        ..Interface::default()
    };
    let ip = |address: IpAddr, prefix| Ip {
        address: IpNet::new(address, prefix).unwrap_or(IpNet::host(address)),
        gateway: None,
        interface: Some(0),
    };
    let ips = vec![ip(Ipv4Addr::LOCALHOST.into(), 8), ip(Ipv6Addr::LOCALHOST.into(), 128)];
    Ok(AddResult { interfaces: vec![interface], ips, ..AddResult::default() })
}

/// The namespace may be deleted already, and the interface with it.
fn del(call: &Call<'_>) -> Result<(), Error> {
    let Ok(netns) = call.netns() else { return Ok(()) };
    let mut rtnl = Rtnl::open_in(&netns)?;
    let link = find(&mut rtnl)?;
    Ok(rtnl.set_down(link.index)?)
}

fn check(call: &Call<'_>) -> Result<(), Error> {
    let link = find(&mut Rtnl::open_in(&call.netns()?)?)?;
    if link.up { Ok(()) } else { Err(Error::internal("loopback interface is down")) }
}

fn no_op(_: &Call<'_>) -> Result<(), Error> {
    Ok(())
}

fn find(rtnl: &mut Rtnl) -> Result<Link, Error> {
    rtnl.link(NAME)?.ok_or_else(|| Error::internal("there is no loopback interface"))
}
