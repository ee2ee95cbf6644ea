//! Addresses of the loopback device that only this machine and its pods reach.

use std::net::IpAddr;

use network::cidr::IpNet;
use network::netlink::{Error, Rtnl};
use rustix::io::Errno;

const DEVICE: &str = "lo";

/// An address of the loopback device, which is removed on drop.
pub(crate) struct LoopbackAddress(IpAddr);

impl LoopbackAddress {
    /// Adds an address; the address of a killed process is taken over.
    pub(crate) fn add(address: IpAddr) -> Result<LoopbackAddress, Error> {
        let mut rtnl = Rtnl::open()?;
        if let Some(device) = rtnl.link(DEVICE)? {
            match rtnl.add_address(device.index, IpNet::host(address)) {
                Err(error) if error.is(Errno::EXIST) => {}
                added => added?,
            }
        }
        Ok(LoopbackAddress(address))
    }
}

impl Drop for LoopbackAddress {
    fn drop(&mut self) {
        let _ = remove(self.0);
    }
}

/// Removes an address; a missing address is no error.
pub(crate) fn remove(address: IpAddr) -> Result<(), Error> {
    let mut rtnl = Rtnl::open()?;
    let Some(device) = rtnl.link(DEVICE)? else { return Ok(()) };
    rtnl.delete_address(device.index, IpNet::host(address))
}
