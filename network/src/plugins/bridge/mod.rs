//! `bridge`: connects the pod to a bridge of the host by a veth pair.

mod check;
mod conf;
mod host;
mod pod;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use self::conf::Conf;
use super::{Call, Plugin, all, guard, ipam, masquerade, owner};
use crate::cidr::{IpNet, next, octets};
use crate::fault;
use crate::netlink::{Link, Mac, Rtnl, mac_text, parse_mac};
use crate::ns::Netns;
use crate::spec::command::Verb;
use crate::spec::error::Error;
use crate::spec::names::derived;
use crate::spec::result::{AddResult, Interface, Route};

pub(crate) const PLUGIN: Plugin = Plugin { name: "bridge", accepts, add, del, check: check::check, gc, status };

fn accepts(conf: &Value) -> Result<(), Error> {
    Conf::read(conf).map(|_| ())
}

/// After a failure, everything is undone.
fn add(call: &Call<'_>) -> Result<AddResult, Error> {
    let conf = Conf::read(call.conf)?;
    call.check_args(&["MAC", "IP", "GATEWAY"])?;
    let netns = call.netns()?;
    // If IPAM fails, nothing was created and nothing is undone: the sandbox may have been attached before.
    let leased = ipam::delegate(call, Verb::Add)?;
    let attached = attach(call, &conf, &netns, leased);
    if let Err(error) = &attached
        && let Err(left) = undo(call, &conf)
    {
        tracing::warn!(%error, %left, container = call.target.container_id, "failed to undo a failed ADD");
    }
    attached
}

fn attach(call: &Call<'_>, conf: &Conf, netns: &Netns, leased: Option<AddResult>) -> Result<AddResult, Error> {
    fault::point("bridge.address-leased")?;
    if leased.as_ref().is_some_and(|leased| leased.ips.is_empty()) {
        return Err(Error::internal("IPAM plugin returned missing IP config"));
    }
    let mut attachment = leased.unwrap_or_default();
    set_gateways(conf, &mut attachment)?;
    let mut rtnl = Rtnl::open()?;
    let bridge = host::ensure_bridge(&mut rtnl, conf, &attachment)?;
    fault::point("bridge.bridge-made")?;
    let mac = pod_mac(call, conf, &attachment)?;
    if conf.routed {
        guard_port(call, mac, bridge.mac, &attachment)?;
    }
    let port = host::add_port(&mut rtnl, call, conf, &bridge, netns, mac)?;
    let pod = pod::configure(netns, call.target.ifname, &attachment, conf.routed)?;
    if conf.masquerade {
        let addresses: Vec<IpNet> = attachment.ips.iter().map(|ip| ip.address).collect();
        call.table(|table| masquerade::add(table, &addresses, &conf.cluster_cidrs, &call.owner()))?;
    }
    fault::point("bridge.masquerade-set")?;
    attachment.interfaces = vec![interface(&bridge, ""), interface(&port, ""), interface(&pod, call.target.netns)];
    attachment.ips.iter_mut().for_each(|ip| ip.interface = Some(2));
    if let Some(dns) = &conf.dns {
        attachment.dns = dns.clone();
    }
    Ok(attachment)
}

/// Before the port exists: there is no packet that is not checked.
fn guard_port(call: &Call<'_>, mac: Option<Mac>, gateway: Mac, attachment: &AddResult) -> Result<(), Error> {
    let mac = mac.ok_or_else(|| Error::configuration("routed: needs an address"))?;
    let ips: Vec<IpAddr> = attachment.ips.iter().map(|ip| ip.address.address).collect();
    let port = guard::Port { name: &port_name(call), mac, gateway, ips: &ips };
    call.table(|table| guard::add(table, &port, &call.owner()))
}

fn unguard(call: &Call<'_>, conf: &Conf) -> Result<(), Error> {
    if conf.routed { call.table(|table| guard::remove(table, &call.owner())) } else { Ok(()) }
}

fn interface(link: &Link, sandbox: &str) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: mac_text(link.mac),
        mtu: Some(link.mtu).filter(|_| !sandbox.is_empty()),
        sandbox: sandbox.to_string(),
        ..Interface::default()
    }
}

/// A gateway that IPAM does not set is the first address of the subnet. A default gateway gets a default route.
fn set_gateways(conf: &Conf, attachment: &mut AddResult) -> Result<(), Error> {
    if !conf.is_gateway {
        return Ok(());
    }
    for ip in attachment.ips.iter_mut().filter(|ip| ip.gateway.is_none()) {
        ip.gateway = next(ip.address.network().address);
    }
    if !conf.is_default_gateway {
        return Ok(());
    }
    for ip in &attachment.ips {
        let anywhere: IpAddr =
            if ip.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let Some(to) = IpNet::new(anywhere, 0) else { continue };
        match attachment.routes.iter().find(|route| route.to == to) {
            Some(route) if route.gateway.is_some_and(|gateway| Some(gateway) != ip.gateway) => {
                let text = format!("isDefaultGateway: IPAM sets the default route via {:?}", route.gateway);
                return Err(Error::configuration(text));
            }
            Some(_) => {}
            None => attachment.routes.push(Route::new(to, ip.gateway)),
        }
    }
    Ok(())
}

/// The requested MAC address, or one that is derived from the IP address: when an address is reused, the MAC address
/// stays the same, so that the neighbour caches of other pods stay valid.
fn pod_mac(call: &Call<'_>, conf: &Conf, attachment: &AddResult) -> Result<Option<Mac>, Error> {
    if let Some(text) = call.arg("MAC") {
        let invalid = || Error::configuration(format!("CNI_ARGS: MAC: {text:?} is not a hardware address"));
        return parse_mac(text).map(Some).ok_or_else(invalid);
    }
    Ok(conf.mac.or_else(|| attachment.ips.first().map(|ip| mac_of(ip.address.address))))
}

fn mac_of(address: IpAddr) -> Mac {
    let bytes = octets(address);
    let last = &bytes[bytes.len() - 4..];
    [0x0a, if address.is_ipv4() { 0x58 } else { 0x59 }, last[0], last[1], last[2], last[3]]
}

/// The port's name is derived from the attachment, so that it is found without the pod's namespace.
fn port_name(call: &Call<'_>) -> String {
    derived(PORT, &[call.network(), call.target.container_id, call.target.ifname])
}

/// Releases the address last: until then it cannot be assigned to another pod.
fn del(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    all(&[&|| unmasquerade(call, &conf), &|| delete_port(call), &|| unguard(call, &conf), &|| {
        ipam::delegate(call, Verb::Del).map(|_| ())
    }])
}

/// As [`del`], for an attachment that this ADD has created: does not look into the pod.
fn undo(call: &Call<'_>, conf: &Conf) -> Result<(), Error> {
    all(&[
        &|| unmasquerade(call, conf),
        &|| Ok(Rtnl::open()?.delete_link(&port_name(call)).map(|_| ())?),
        &|| unguard(call, conf),
        &|| ipam::delegate(call, Verb::Del).map(|_| ()),
    ])
}

fn unmasquerade(call: &Call<'_>, conf: &Conf) -> Result<(), Error> {
    if conf.masquerade { call.table(|table| masquerade::remove(table, &call.owner())) } else { Ok(()) }
}

/// Finds the port by its derived name; by the name and MAC address of the previous result, if another plugin created
/// it; or from inside the pod. The path of the namespace may belong to another pod by now, so it is used last, and
/// only if it does not contradict what is known of the device.
fn delete_port(call: &Call<'_>) -> Result<(), Error> {
    let mut rtnl = Rtnl::open()?;
    if call.delete_device(&mut rtnl, &port_name(call))? {
        return Ok(());
    }
    let previous = call.previous()?.unwrap_or_default();
    for known in previous.interfaces.iter().filter(|known| known.sandbox.is_empty() && !known.mac.is_empty()) {
        let found = rtnl.link(&known.name)?.filter(|link| link.kind.as_deref() == Some("veth"));
        if found.is_some_and(|link| mac_text(link.mac) == known.mac) {
            call.delete_device(&mut rtnl, &known.name)?;
            return Ok(());
        }
    }
    let Ok(netns) = call.netns() else { return Ok(()) };
    let mut inside = Rtnl::open_in(&netns)?;
    let Some(link) = inside.link(call.target.ifname)?.filter(|link| link.kind.as_deref() == Some("veth")) else {
        return Ok(());
    };
    let other_end = link.peer.map(|index| rtnl.link_at(index)).transpose()?.flatten();
    let known = previous.in_sandbox(call.target.ifname);
    let another = known.is_some_and(|known| known.mac != mac_text(link.mac));
    if !another && !other_end.is_some_and(|end| is_port_name(&end.name)) {
        inside.delete_link(call.target.ifname)?;
    }
    Ok(())
}

/// Whether this is the name of a port that this plugin created, for any attachment.
fn is_port_name(name: &str) -> bool {
    let digits = name.strip_prefix(PORT).unwrap_or_default();
    name.len() == 15 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const PORT: &str = "veth";

fn gc(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let network = call.network();
    let owners: Vec<String> = call.valid()?.iter().map(|(id, ifname)| owner(id, ifname, network)).collect();
    let of_network = |comment: &str| comment.split(' ').nth(2) == Some(network);
    let is_kept = |comment: &str| !of_network(comment) || owners.iter().any(|owner| owner == comment);
    all(&[
        &|| if conf.routed { call.table(|table| guard::retain(table, is_kept)) } else { Ok(()) },
        &|| if conf.masquerade { call.table(|table| masquerade::retain(table, network, &owners)) } else { Ok(()) },
        &|| ipam::delegate(call, Verb::Gc).map(|_| ()),
    ])
}

fn status(call: &Call<'_>) -> Result<(), Error> {
    Conf::read(call.conf)?;
    ipam::delegate(call, Verb::Status).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::result::Ip;

    #[test]
    fn gateways_and_default_routes() {
        let conf = |json: Value| Conf::read(&json).unwrap();
        let ip = |text: &str| Ip { address: text.parse().unwrap(), gateway: None, interface: None };
        let mut attachment = AddResult { ips: vec![ip("10.1.0.5/16"), ip("fd00::5/64")], ..AddResult::default() };
        set_gateways(&conf(serde_json::json!({})), &mut attachment).unwrap();
        assert_eq!(attachment.ips[0].gateway, None);
        set_gateways(&conf(serde_json::json!({ "isDefaultGateway": true })), &mut attachment).unwrap();
        let gateways: Vec<String> = attachment.ips.iter().map(|ip| ip.gateway.unwrap().to_string()).collect();
        assert_eq!(gateways, ["10.1.0.1", "fd00::1"]);
        let routes: Vec<String> = attachment.routes.iter().map(|route| route.to.to_string()).collect();
        assert_eq!(routes, ["0.0.0.0/0", "::/0"]);
        attachment.routes[0].gateway = "10.1.0.9".parse().ok();
        assert!(set_gateways(&conf(serde_json::json!({ "isDefaultGateway": true })), &mut attachment).is_err());
    }

    #[test]
    fn port_names_are_longer_than_upstreams() {
        assert!(is_port_name(&derived(PORT, &["n", "c", "eth0"])));
        assert!(!is_port_name("veth0a1b2c3d") && !is_port_name("vethernet-other") && !is_port_name("eth0"));
    }

    #[test]
    fn derives_mac_addresses_from_ip_addresses() {
        assert_eq!(mac_text(mac_of("10.1.2.3".parse().unwrap())), "0a:58:0a:01:02:03");
        assert_eq!(mac_text(mac_of("fd00::1:2".parse().unwrap())), "0a:59:00:01:00:02");
    }
}
