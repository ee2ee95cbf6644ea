//! Service ranges: their addresses, and the order in which they are allocated. Pure.

use std::net::IpAddr;

/// A range of one family, such as `10.96.0.0/16`. The network's own address is never given out, nor
/// is an IPv4 broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    network: IpAddr,
    first: u128,
    last: u128,
    /// How many of the first addresses are reserved for services that name one; dynamic allocation uses them last.
    reserved: u128,
}

/// The smallest and largest band that is kept for named addresses, and its share of the range.
const BAND: (u128, u128, u128) = (16, 256, 16);

impl Range {
    pub(super) fn new(network: IpAddr, bits: u8) -> Option<Range> {
        let width: u32 = if network.is_ipv4() { 32 } else { 128 };
        let host_bits = width.checked_sub(u32::from(bits))?;
        // Upstream takes no IPv6 range that is wider than 64 bits.
        if host_bits > 64 {
            return None;
        }
        let size = 1u128 << host_bits;
        let base = number(network) & !(size - 1);
        let broadcast = u128::from(network.is_ipv4());
        let last = (base + size).checked_sub(1 + broadcast)?;
        Some(Range { network: address(base, network), first: base + 1, last, reserved: band(size, BAND) })
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.network.is_ipv4()
    }

    /// The address of the network itself: what a dry run shows.
    pub(super) fn network(&self) -> IpAddr {
        self.network
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.is_ipv4() && (self.first..=self.last).contains(&number(ip))
    }

    /// An address that is not taken: from the upper band first, each from a random place on.
    pub(super) fn pick(&self, below: impl Fn(u64) -> u64, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let middle = self.first + self.reserved;
        let free = |from: u128, to: u128| {
            let size = (to + 1).checked_sub(from).filter(|size| *size > 0)?;
            let start = u128::from(below(u64::try_from(size).unwrap_or(u64::MAX)));
            let order = (0..size).map(|step| from + (start + step) % size);
            order.map(|number| address(number, self.network)).find(|ip| !taken(*ip))
        };
        free(middle, self.last).or_else(|| free(self.first, middle - 1))
    }
}

/// The size of the lower band of a range: a share of it between two limits, none for tiny ranges.
pub(crate) fn band(size: u128, (min, max, share): (u128, u128, u128)) -> u128 {
    if size <= min { 0 } else { (size / share).clamp(min, max) }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::from(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()),
        IpAddr::V6(_) => IpAddr::from(number.to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn range(network: &str, bits: u8) -> Range {
        Range::new(network.parse().expect("an address"), bits).expect("a range")
    }

    #[test]
    fn the_ends_of_a_range_are_not_given_out() {
        let cases = [
            ("10.96.0.0", false),
            ("10.96.0.1", true),
            ("10.96.255.254", true),
            ("10.96.255.255", false),
            ("10.97.0.1", false),
            ("fd00::1", false),
        ];
        for (ip, want) in cases {
            assert_eq!(range("10.96.0.0", 16).contains(ip.parse().expect("an address")), want, "{ip}");
        }
        assert!(range("fd00::", 112).contains("fd00::ffff".parse().expect("an address")));
    }

    #[test]
    fn the_lower_band_comes_last() {
        let cases = [(16, 0), (32, 16), (256, 16), (1024, 64), (65_536, 256)];
        for (size, want) in cases {
            assert_eq!(band(size, BAND), want, "{size}");
        }
        let range = range("10.0.0.0", 24);
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
        assert_eq!(Range::new("fd00::".parse().expect("an address"), 48), None);
        assert!(range("fd00::", 64).pick(|bound| bound - 1, |_| false).is_some());
    }
}
