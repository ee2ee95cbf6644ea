//! The address at which pods of this machine reach an API server that otherwise listens on the loopback address only.
//! It is an address of the loopback device that no network routes to; connections from a network are rejected.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use network::netlink::{Error as NetlinkError, Rtnl};
use tokio::net::TcpListener;

use crate::error::{Error, Result};
use crate::machine::loopback::LoopbackAddress;

/// Reserved for documentation: the default route leads there, if there is one.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Adds the address and listens there, as long as the first result exists.
pub(crate) async fn listen(address: SocketAddr) -> Result<(LoopbackAddress, TcpListener)> {
    let failed = |error: NetlinkError| Error::Listen { address, source: std::io::Error::other(error.to_string()) };
    let added = LoopbackAddress::add(address.ip()).map_err(failed)?;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    Ok((added, listener))
}

/// Whether a connection to a local address may come from a peer: the machine itself and its pods may connect to the
/// address for pods.
pub(crate) fn accepts(for_pods: IpAddr, local: IpAddr, peer: IpAddr) -> bool {
    local != for_pods || is_on_machine(peer).unwrap_or(false)
}

/// Whether packets to an address stay on the machine: they leave neither by a hardware device nor by the device of the
/// default route.
fn is_on_machine(peer: IpAddr) -> std::result::Result<bool, NetlinkError> {
    let mut rtnl = Rtnl::open()?;
    let Some(device) = rtnl.device_to(peer)? else { return Ok(false) };
    // Without a default route, the lookup fails.
    let way_out = rtnl.device_to(ELSEWHERE).ok().flatten();
    let Some(link) = rtnl.link_at(device)? else { return Ok(false) };
    let is_hardware = Path::new("/sys/class/net").join(&link.name).join("device").exists();
    Ok(way_out != Some(device) && !is_hardware)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_local_connections() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let for_pods = IpAddr::from([10, 42, 255, 254]);
        assert!(accepts(for_pods, loopback, ELSEWHERE), "another address is not guarded");
        assert!(accepts(for_pods, for_pods, loopback));
        assert!(!accepts(for_pods, for_pods, ELSEWHERE));
    }
}
