//! The networks of ServiceCIDRs.

use std::net::IpAddr;

use api::Tree;
use api::validation::parse_cidr;

/// An IP network.
#[derive(Debug)]
pub(crate) struct Network {
    first: IpAddr,
    bits: u8,
}

/// The networks of a ServiceCIDR.
pub(crate) fn networks(range: &Tree) -> Vec<Network> {
    let parse = |cidr: &Tree| cidr.as_str().and_then(parse_cidr).map(|(first, bits)| Network { first, bits });
    range.list("spec.cidrs").iter().filter_map(parse).collect()
}

impl Network {
    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        let (own, other, width) = match (self.first, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (u128::from(own), u128::from(other), 128u32),
            _ => return false,
        };
        let host = width.saturating_sub(u32::from(self.bits));
        own.checked_shr(host) == other.checked_shr(host)
    }
}
