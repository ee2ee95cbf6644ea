//! IP networks and the arithmetic of their addresses: the CIDR type of every crate.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the prefix length of its network. Host bits may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpNet {
    pub address: IpAddr,
    /// Never longer than the address.
    prefix: u8,
}

impl IpNet {
    /// None if the prefix is longer than the address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<IpNet> {
        (prefix <= width(address)).then_some(IpNet { address, prefix })
    }

    /// The network that contains only this address.
    pub fn host(address: IpAddr) -> IpNet {
        IpNet { address, prefix: width(address) }
    }

    /// The prefix length.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether this is an IPv4 network.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The network itself: host bits cleared.
    pub fn network(&self) -> IpNet {
        IpNet { address: from_bits(bits(self.address) & self.mask(), self.is_ipv4()), prefix: self.prefix }
    }

    /// The first address after the network's own.
    pub fn first(&self) -> Option<IpAddr> {
        next(self.network().address)
    }

    /// The last address of the network.
    pub fn last(&self) -> IpAddr {
        let all = bits(self.address) | !self.mask();
        from_bits(if self.is_ipv4() { all & u128::from(u32::MAX) } else { all }, self.is_ipv4())
    }

    /// Whether the network contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && bits(address) & self.mask() == bits(self.address) & self.mask()
    }

    /// Whether all addresses of another network are in this one.
    pub fn contains_net(&self, other: &IpNet) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Whether the networks have an address in common.
    pub fn overlaps(&self, other: &IpNet) -> bool {
        self.contains(other.network().address) || other.contains(self.network().address)
    }

    fn mask(&self) -> u128 {
        let host_bits = u32::from(width(self.address) - self.prefix);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        if self.is_ipv4() { mask & u128::from(u32::MAX) } else { mask }
    }
}

/// A text that is not a network, with the message of Go's `net.ParseCIDR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCidr(String);

impl fmt::Display for InvalidCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid CIDR address: {}", self.0)
    }
}

impl std::error::Error for InvalidCidr {}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for IpNet {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<IpNet, InvalidCidr> {
        let invalid = || InvalidCidr(text.to_string());
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        IpNet::new(address, prefix.parse().map_err(|_| invalid())?).ok_or_else(invalid)
    }
}

/// The address after this one; None after the last address.
pub fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// The address before this one; None before the first.
pub fn previous(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_sub(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6.to_bits().checked_sub(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// The octets of an address, in network byte order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address with these octets; None if there are neither 4 nor 16.
pub fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|octets| Ipv4Addr::from(octets).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// The number of bits of an address of this family.
pub fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address as a number.
pub fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address of a number; IPv4 uses the lowest 32 bits.
pub fn from_bits(bits: u128, ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_their_ends() {
        for (text, network, last) in [
            ("10.1.2.3/24", "10.1.2.0/24", "10.1.2.255"),
            ("10.1.2.3/32", "10.1.2.3/32", "10.1.2.3"),
            ("10.1.2.3/0", "0.0.0.0/0", "255.255.255.255"),
            ("10.1.2.129/25", "10.1.2.128/25", "10.1.2.255"),
            ("fd00::5/64", "fd00::/64", "fd00::ffff:ffff:ffff:ffff"),
            ("fd00::5/128", "fd00::5/128", "fd00::5"),
        ] {
            let net: IpNet = text.parse().unwrap();
            assert_eq!(net.to_string(), text);
            assert_eq!(net.network().to_string(), network);
            assert_eq!(net.last().to_string(), last);
            assert!(net.contains(net.last()) && net.contains(net.address));
        }
    }

    #[test]
    fn refuses_invalid_networks() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0/+8", "10.0.0.0/", "x/8"] {
            assert_eq!(text.parse::<IpNet>().unwrap_err().to_string(), format!("invalid CIDR address: {text}"));
        }
    }

    #[test]
    fn overlaps_and_neighbours() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        for (a, b, overlap) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.2.0.0/16", false),
            ("10.1.0.0/16", "fd00::/8", false),
        ] {
            assert_eq!(net(a).overlaps(&net(b)), overlap, "{a} {b}");
        }
        for (a, b, contains) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("0.0.0.0/0", "fd00::/8", false),
            ("::/0", "fd00::/8", true),
        ] {
            assert_eq!(net(a).contains_net(&net(b)), contains, "{a} {b}");
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(next(address("10.0.0.255")), Some(address("10.0.1.0")));
        assert_eq!(next(address("255.255.255.255")), None);
        assert_eq!(previous(address("fd00::")), Some(address("fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")));
        assert_eq!(from_octets(&octets(address("fd00::1"))), Some(address("fd00::1")));
        assert_eq!(from_octets(&[1, 2, 3]), None);
    }
}
