//! Service ranges: their addresses, and the order in which they are allocated. Pure.

use std::net::IpAddr;

use stdx::cidr::{IpNet, bits, from_bits, width};

/// A range of one family, such as `10.96.0.0/16`. The network's own address is never allocated, nor is an IPv4
/// broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    network: IpAddr,
    first: u128,
    last: u128,
    /// The number of first addresses that are reserved for services that name one; dynamic allocation uses them last.
    reserved: u128,
}

/// The minimum and maximum size of the band for named addresses, and its share of the range.
const BAND: (u128, u128, u128) = (16, 256, 16);

impl Range {
    pub(super) fn new(cidr: &IpNet) -> Option<Range> {
        let host_bits = width(cidr.address) - cidr.prefix();
        // Upstream accepts no IPv6 range with more than 64 host bits.
        if host_bits > 64 {
            return None;
        }
        let size = 1u128 << host_bits;
        let network = cidr.network().address;
        let base = bits(network);
        let broadcast = u128::from(cidr.is_ipv4());
        let last = (base + size).checked_sub(1 + broadcast)?;
        Some(Range { network, first: base + 1, last, reserved: band(size, BAND) })
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.network.is_ipv4()
    }

    /// The address of the network itself: the result of a dry run.
    pub(super) fn network(&self) -> IpAddr {
        self.network
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.is_ipv4() && (self.first..=self.last).contains(&bits(ip))
    }

    /// Picks a free address: from the upper band first, starting at a random offset in each band.
    pub(super) fn pick(&self, below: impl Fn(u64) -> u64, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let middle = self.first + self.reserved;
        let free = |from: u128, to: u128| {
            let size = (to + 1).checked_sub(from).filter(|size| *size > 0)?;
            let start = u128::from(below(u64::try_from(size).unwrap_or(u64::MAX)));
            let order = (0..size).map(|step| from + (start + step) % size);
            order.map(|bits| from_bits(bits, self.is_ipv4())).find(|ip| !taken(*ip))
        };
        free(middle, self.last).or_else(|| free(self.first, middle - 1))
    }
}

/// The size of the lower band of a range: a share of it between two limits, none for tiny ranges.
pub(crate) fn band(size: u128, (min, max, share): (u128, u128, u128)) -> u128 {
    if size <= min { 0 } else { (size / share).clamp(min, max) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn range(cidr: &str) -> Range {
        Range::new(&cidr.parse().expect("a network")).expect("a range")
    }

    #[test]
    fn does_not_allocate_the_ends_of_a_range() {
        let cases = [
            ("10.96.0.0", false),
            ("10.96.0.1", true),
            ("10.96.255.254", true),
            ("10.96.255.255", false),
            ("10.97.0.1", false),
            ("fd00::1", false),
        ];
        for (ip, want) in cases {
            assert_eq!(range("10.96.0.0/16").contains(ip.parse().expect("an address")), want, "{ip}");
        }
        assert!(range("fd00::/112").contains("fd00::ffff".parse().expect("an address")));
    }

    #[test]
    fn the_lower_band_comes_last() {
        let cases = [(16, 0), (32, 16), (256, 16), (1024, 64), (65_536, 256)];
        for (size, want) in cases {
            assert_eq!(band(size, BAND), want, "{size}");
        }
        let range = range("10.0.0.0/24");
        let mut taken = HashSet::new();
        let mut order = Vec::new();
        while let Some(ip) = range.pick(|_| 0, |ip| taken.contains(&ip)) {
            taken.insert(ip);
            order.push(ip.to_string());
        }
        assert_eq!(order.len(), 254);
        assert_eq!((order[0].as_str(), order[237].as_str()), ("10.0.0.17", "10.0.0.254"));
        assert_eq!((order[238].as_str(), order[253].as_str()), ("10.0.0.1", "10.0.0.16"));
    }

    #[test]
    fn wide_ranges_of_ipv6_are_refused() {
        assert_eq!(Range::new(&"fd00::/48".parse().expect("a network")), None);
        assert!(range("fd00::/64").pick(|bound| bound - 1, |_| false).is_some());
    }
}
