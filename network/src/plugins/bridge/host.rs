//! The host's side: the bridge, its addresses, and a port for each pod.

use rustix::io::Errno;

use super::conf::Conf;
use super::port_name;
use crate::cidr::IpNet;
use crate::netlink::{Link, Mac, Rtnl, Veth};
use crate::ns::Netns;
use crate::plugins::Call;
use crate::spec::error::Error;
use crate::spec::result::AddResult;
use crate::{fault, sysctl};

/// The bridge, up, with the gateways' addresses. Most often it is there.
pub fn ensure_bridge(rtnl: &mut Rtnl, conf: &Conf, attachment: &AddResult) -> Result<Link, Error> {
    let mut bridge = match rtnl.link(&conf.bridge)? {
        Some(bridge) => bridge,
        None => make_bridge(rtnl, conf)?,
    };
    if bridge.kind.as_deref() != Some("bridge") {
        return Err(Error::internal(format!("{:?} already exists but is not a bridge", conf.bridge)));
    }
    if !bridge.up {
        rtnl.set_up(bridge.index)?;
        bridge.up = true;
    }
    if conf.promiscuous && !bridge.promiscuous {
        rtnl.set_promiscuous(bridge.index)?;
    }
    if conf.is_gateway {
        for ip in &attachment.ips {
            let gateway = ip.gateway.and_then(|gateway| IpNet::new(gateway, ip.address.prefix()));
            if let Some(gateway) = gateway {
                ensure_address(rtnl, &bridge, gateway, conf.force_address)?;
            }
        }
        enable_forwarding(attachment)?;
    }
    Ok(bridge)
}

fn make_bridge(rtnl: &mut Rtnl, conf: &Conf) -> Result<Link, Error> {
    let made = match rtnl.add_link("bridge", &conf.bridge, conf.mtu) {
        Err(error) if error.is(Errno::EXIST) => false,
        outcome => outcome.map(|()| true)?,
    };
    let missing = || Error::internal(format!("the bridge {:?} has just been made and is gone", conf.bridge));
    let bridge = rtnl.link(&conf.bridge)?.ok_or_else(missing)?;
    if made {
        // An address that was set stays; otherwise it would change with the ports.
        rtnl.set_mac(bridge.index, bridge.mac)?;
        // Its routes are ours to set. A kernel without IPv6 has no such setting.
        if let Err(error) = sysctl::set(&format!("ipv6/conf/{}/accept_ra", conf.bridge), "0") {
            tracing::debug!(%error, "router advertisements are not turned off");
        }
    }
    Ok(bridge)
}

/// Another address of the same network is in the way, and so is any other of IPv4, as upstream has it.
fn ensure_address(rtnl: &mut Rtnl, bridge: &Link, gateway: IpNet, force: bool) -> Result<(), Error> {
    for address in rtnl.addresses(bridge.index)? {
        if address.net == gateway {
            return Ok(());
        }
        let same_family = address.net.is_ipv4() == gateway.is_ipv4();
        if !same_family || (!gateway.is_ipv4() && !address.net.overlaps(&gateway)) {
            continue;
        }
        if !force {
            let text = format!("{:?} already has an IP address different from {gateway}", bridge.name);
            return Err(Error::internal(text));
        }
        rtnl.delete_address(bridge.index, address.net)?;
    }
    match rtnl.add_address(bridge.index, gateway) {
        // Another pod's ADD was faster.
        Err(error) if error.is(Errno::EXIST) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn enable_forwarding(attachment: &AddResult) -> Result<(), Error> {
    let ipv4 = attachment.ips.iter().any(|ip| ip.address.is_ipv4());
    let ipv6 = attachment.ips.iter().any(|ip| !ip.address.is_ipv4());
    for (wanted, name) in [(ipv4, "ipv4/ip_forward"), (ipv6, "ipv6/conf/all/forwarding")] {
        if wanted {
            sysctl::set(name, "1").map_err(|error| Error::from(error).within("failed to enable forwarding"))?;
        }
    }
    Ok(())
}

/// The pair, of which the other end is in the pod.
pub fn add_port(
    rtnl: &mut Rtnl,
    call: &Call<'_>,
    conf: &Conf,
    bridge: &Link,
    netns: &Netns,
    peer_mac: Option<Mac>,
) -> Result<Link, Error> {
    let name = port_name(call);
    let ifname = call.target.ifname;
    let veth =
        Veth { name: &name, peer: ifname, peer_netns: netns, peer_mac, master: Some(bridge.index), mtu: conf.mtu };
    match rtnl.add_veth(&veth) {
        // What has the name is this attachment's, from an ADD that somebody died over.
        Err(error) if error.is(Errno::EXIST) && rtnl.delete_link(&name)? => rtnl.add_veth(&veth)?,
        Err(error) if error.is(Errno::EXIST) => {
            return Err(Error::from(error).within(format!("the pod may have {ifname:?} already")));
        }
        outcome => outcome?,
    }
    fault::point("bridge.veth-made")?;
    let port = rtnl.link(&name)?.ok_or_else(|| Error::internal(format!("{name:?} has just been made and is gone")))?;
    if conf.hairpin {
        rtnl.set_hairpin(port.index, true)?;
    }
    fault::point("bridge.port-set")?;
    Ok(port)
}
