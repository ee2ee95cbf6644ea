//! The bridge that joins hosts. It is their way to each other and out of the machine.

use std::net::IpAddr;

use network::cidr::IpNet;
use network::netlink::{Error, Route, Rtnl, Veth};
use network::nft::{Batch, Expression, Family, Hook, Nft, Side};
use network::ns::Netns;
use rustix::io::Errno;

const INTERFACE: &str = "eth0";
const POSTROUTING: &str = "postrouting";
const SOURCE_NAT: i32 = 100;
const FAMILY: Family = Family::Ipv4;

/// The bridge of the hosts of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// The name of the bridge, and of its nftables table.
    pub name: String,
    /// The address of the bridge, with the prefix of the link.
    pub net: IpNet,
    /// The same of IPv6, for clusters that have it.
    pub net6: Option<IpNet>,
    /// Ranges between which packets keep their source addresses.
    pub inside: Vec<IpNet>,
}

/// How a host is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// The name of the device on the machine.
    pub device: String,
    /// The host's address, with the prefix of the link.
    pub net: IpNet,
    /// The same of IPv6.
    pub net6: Option<IpNet>,
}

impl Router {
    /// Creates the bridge, and lets hosts reach other networks through the machine.
    pub fn ensure(&self) -> Result<(), crate::Error> {
        let mut rtnl = Rtnl::open()?;
        match rtnl.add_link("bridge", &self.name, None) {
            Err(error) if error.is(Errno::EXIST) => {}
            created => created?,
        }
        let bridge = self.index(&mut rtnl)?;
        let own: Vec<IpNet> = std::iter::once(self.net).chain(self.net6).collect();
        let known = rtnl.addresses(bridge)?;
        for other in known.iter().filter(|address| !address.link_local && !own.contains(&address.net)) {
            rtnl.delete_address(bridge, other.net)?;
        }
        for net in own {
            match rtnl.add_address(bridge, net) {
                Err(error) if error.is(Errno::EXIST) => {}
                added => added?,
            }
        }
        rtnl.set_up(bridge)?;
        network::sysctl::set("ipv4/ip_forward", "1").map_err(crate::io("failed to enable forwarding"))?;
        Ok(self.masquerade()?)
    }

    fn index(&self, rtnl: &mut Rtnl) -> Result<u32, Error> {
        let missing = || Error::new(format!("look for the bridge {}", self.name), Errno::NODEV);
        rtnl.link(&self.name)?.map(|link| link.index).ok_or_else(missing)
    }

    /// Packets of hosts that leave the machine get its address.
    fn masquerade(&self) -> Result<(), Error> {
        let mut nft = Nft::open()?;
        let mut batch = Batch::new(FAMILY, &self.name);
        if nft.has_table(FAMILY, &self.name)? {
            batch.delete_table();
        }
        batch.create_table();
        batch.create_chain(POSTROUTING, Some(Hook::nat(Hook::POSTROUTING, SOURCE_NAT)));
        for inside in std::iter::once(&self.net).chain(&self.inside).filter(|range| range.is_ipv4()) {
            batch.match_net(POSTROUTING, inside.network(), Side::Destination, Expression::Return);
        }
        batch.match_net(POSTROUTING, self.net.network(), Side::Source, Expression::Masquerade);
        batch.commit(&mut nft, "masquerade packets of simulated hosts")
    }

    /// Attaches a namespace, with an address and a default route.
    pub fn attach(&self, netns: &Netns, link: &HostLink) -> Result<(), Error> {
        let mut rtnl = Rtnl::open()?;
        let bridge = self.index(&mut rtnl)?;
        // A killed process may have left it; the kernel deletes it a little later than its namespace.
        rtnl.delete_link(&link.device)?;
        rtnl.add_veth(&Veth {
            name: &link.device,
            peer: INTERFACE,
            peer_netns: netns,
            peer_mac: None,
            master: Some(bridge),
            mtu: None,
        })?;
        let mut inside = Rtnl::open_in(netns)?;
        let missing = |name: &str| Error::new(format!("look for the device {name}"), Errno::NODEV);
        let lo = inside.link("lo")?.ok_or_else(|| missing("lo"))?;
        inside.set_up(lo.index)?;
        let eth = inside.link(INTERFACE)?.ok_or_else(|| missing(INTERFACE))?;
        for net in std::iter::once(link.net).chain(link.net6) {
            inside.add_address(eth.index, net)?;
        }
        inside.set_up(eth.index)?;
        for router in std::iter::once(self.net).chain(self.net6.filter(|_| link.net6.is_some())) {
            let anywhere = IpNet::new(unspecified(router), 0);
            let route = anywhere.map(|to| Route::new(to, Some(router.address), eth.index));
            route.map_or(Ok(()), |route| inside.add_route(&route))?;
        }
        Ok(())
    }

    /// Deletes the bridge, the devices of hosts, and the rules.
    pub fn remove(&self) -> Result<(), Error> {
        let mut rtnl = Rtnl::open()?;
        if let Some(bridge) = rtnl.link(&self.name)? {
            // The kernel deletes the devices of hosts that have just ended a little later than their namespaces.
            for attached in rtnl.links()?.iter().filter(|link| link.master == Some(bridge.index)) {
                rtnl.delete_link(&attached.name)?;
            }
            rtnl.delete_link(&self.name)?;
        }
        let mut nft = Nft::open()?;
        if !nft.has_table(FAMILY, &self.name)? {
            return Ok(());
        }
        let mut batch = Batch::new(FAMILY, &self.name);
        batch.delete_table();
        batch.commit(&mut nft, "delete the rules of simulated hosts")
    }
}

fn unspecified(net: IpNet) -> IpAddr {
    if net.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) }
}
