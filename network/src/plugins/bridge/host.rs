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

/// Ensures that the bridge exists, is up, and has the addresses of the gateways.
pub(super) fn ensure_bridge(rtnl: &mut Rtnl, conf: &Conf, attachment: &AddResult) -> Result<Link, Error> {
    let mut bridge = match rtnl.link(&conf.bridge)? {
        Some(bridge) => bridge,
        None => create_bridge(rtnl, conf)?,
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

fn create_bridge(rtnl: &mut Rtnl, conf: &Conf) -> Result<Link, Error> {
    let made = match rtnl.add_link("bridge", &conf.bridge, conf.mtu) {
        Err(error) if error.is(Errno::EXIST) => false,
        outcome => outcome.map(|()| true)?,
    };
    let missing = || Error::internal(format!("the bridge {:?} disappeared after it was created", conf.bridge));
    let bridge = rtnl.link(&conf.bridge)?.ok_or_else(missing)?;
    if made {
        // A MAC address that was set explicitly does not change when ports are added.
        rtnl.set_mac(bridge.index, bridge.mac)?;
        // The plugin sets the bridge's routes. A kernel without IPv6 has no such sysctl.
        if let Err(error) = sysctl::set(&format!("ipv6/conf/{}/accept_ra", conf.bridge), "0") {
            tracing::debug!(%error, "failed to disable router advertisements");
        }
    }
    Ok(bridge)
}

/// Another address of the same network conflicts, and so does any other IPv4 address, as in upstream's plugin.
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
        // A concurrent ADD has added it.
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

/// Creates the veth pair, with one end in the pod.
pub(super) fn add_port(
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
        // The device is a leftover of an earlier ADD of this attachment that was interrupted.
        Err(error) if error.is(Errno::EXIST) && rtnl.delete_link(&name)? => rtnl.add_veth(&veth)?,
        Err(error) if error.is(Errno::EXIST) => {
            return Err(Error::from(error).within(format!("the pod may already have {ifname:?}")));
        }
        outcome => outcome?,
    }
    fault::point("bridge.veth-made")?;
    let port =
        rtnl.link(&name)?.ok_or_else(|| Error::internal(format!("{name:?} disappeared after it was created")))?;
    if conf.hairpin {
        rtnl.set_hairpin(port.index, true)?;
    }
    if conf.isolated {
        rtnl.set_isolated(port.index, true)?;
    }
    fault::point("bridge.port-set")?;
    Ok(port)
}
