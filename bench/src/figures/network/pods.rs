//! Two network namespaces on a bridge, as pods have them.

use std::io;

use network::netlink::{Route, Rtnl, Veth};
use network::ns::Netns;

use crate::Result;

pub(super) const BRIDGE: &str = "bench0";
const GATEWAY: &str = "10.244.1.1";

/// The network namespace of a pod. It is removed with the last handle and socket.
pub(super) struct Pod {
    pub(super) netns: Netns,
    pub(super) address: String,
}

/// Creates the bridge in the namespace of this process.
pub(super) fn create_bridge() -> Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let mut rtnl = Rtnl::open()?;
    rtnl.add_link("bridge", BRIDGE, None)?;
    let bridge = index(&mut rtnl, BRIDGE)?;
    rtnl.set_up(bridge)?;
    Ok(rtnl.add_address(bridge, format!("{GATEWAY}/24").parse()?)?)
}

impl Pod {
    pub(super) fn create(number: u8) -> Result<Pod> {
        let mut rtnl = Rtnl::open()?;
        let bridge = index(&mut rtnl, BRIDGE)?;
        let (name, address) = (format!("bench-pod{number}"), format!("10.244.1.{number}"));
        let netns = new_namespace()?;
        let (peer, peer_netns) = ("eth0", &netns);
        rtnl.add_veth(&Veth { name: &name, peer, peer_netns, peer_mac: None, master: Some(bridge), mtu: None })?;
        let link = index(&mut rtnl, &name)?;
        rtnl.set_up(link)?;
        rtnl.set_hairpin(link, true)?;
        let mut inside = Rtnl::open_in(&netns)?;
        let eth0 = index(&mut inside, peer)?;
        inside.set_up(eth0)?;
        inside.add_address(eth0, format!("{address}/24").parse()?)?;
        inside.add_route(&Route::new("0.0.0.0/0".parse()?, GATEWAY.parse().ok(), eth0))?;
        Ok(Pod { netns, address })
    }
}

fn index(rtnl: &mut Rtnl, name: &str) -> Result<u32> {
    Ok(rtnl.link(name)?.ok_or_else(|| format!("the link {name} does not exist"))?.index)
}

/// A namespace belongs to a thread first; the handle keeps it.
fn new_namespace() -> Result<Netns> {
    let create = || -> io::Result<Netns> {
        network::ns::unshare()?;
        Netns::current()
    };
    Ok(std::thread::spawn(create).join().map_err(|_| "the thread of a namespace panicked")??)
}
