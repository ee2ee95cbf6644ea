//! Address ranges, and the order in which addresses are allocated.

use std::fmt;
use std::net::IpAddr;

use crate::cidr::{IpNet, next, previous};
use crate::spec::result::Ip;

/// A range of addresses in a subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub subnet: IpNet,
    pub start: IpAddr,
    pub end: IpAddr,
    pub gateway: Option<IpAddr>,
}

/// Ranges of one address family that do not overlap. An attachment gets one address of each set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet {
    pub ranges: Vec<Range>,
}

impl Range {
    /// Fills in the defaults. An error names the invalid field.
    pub(super) fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Range, (&'static str, String)> {
        let network = subnet.network();
        if network != subnet {
            let text = format!("has host bits set: for a mask of length {} it is {}", subnet.prefix(), network.address);
            return Err(("subnet", text));
        }
        if subnet.prefix() > IpNet::host(subnet.address).prefix() - 2 {
            return Err(("subnet", format!("{subnet} is too small to allocate from")));
        }
        let inside = |field, address: Option<IpAddr>| match address.filter(|address| !subnet.contains(*address)) {
            Some(address) => Err((field, format!("{address} is not in {subnet}"))),
            None => Ok(()),
        };
        inside("rangeStart", start)?;
        inside("rangeEnd", end)?;
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != subnet.is_ipv4()) {
            return Err(("gateway", format!("is not of the family of {subnet}")));
        }
        let first = next(subnet.address).unwrap_or(subnet.address);
        let start = start.unwrap_or(first);
        let end = end.unwrap_or_else(|| last(&subnet));
        if start > end {
            return Err(("rangeStart", format!("{start} is after the range's end {end}")));
        }
        Ok(Range { subnet, start, end, gateway: Some(gateway.unwrap_or(first)) })
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.subnet.contains(address) && self.start <= address && address <= self.end
    }

    pub(super) fn overlaps(&self, other: &Range) -> bool {
        self.subnet.is_ipv4() == other.subnet.is_ipv4() && self.start <= other.end && other.start <= self.end
    }
}

/// The last address that a pod may have, which is not the broadcast address.
fn last(subnet: &IpNet) -> IpAddr {
    let last = subnet.last();
    if subnet.is_ipv4() { previous(last).unwrap_or(last) } else { last }
}

impl RangeSet {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Every address once, starting after the last allocated one, so that a released address is not reused soon. Skips
    /// gateways.
    pub(super) fn from(&self, last: Option<IpAddr>) -> impl Iterator<Item = IpAddr> + '_ {
        let at = last.and_then(|last| self.ranges.iter().position(|range| range.contains(last)).map(|at| (at, last)));
        let (at, last) = at.map_or((0, None), |(at, last)| (at, Some(last)));
        let range = |index: usize| &self.ranges[index % self.ranges.len()];
        let begun = self.ranges.get(at).map(|range| span(last.map_or(Some(range.start), next), Some(range.end)));
        let others = (at + 1..at + self.ranges.len())
            .flat_map(move |index| span(Some(range(index).start), Some(range(index).end)));
        let rest = last.map(|last| span(Some(range(at).start), Some(last)));
        let all = begun.into_iter().flatten().chain(others).chain(rest.into_iter().flatten());
        all.filter(|address| !self.ranges.iter().any(|range| range.gateway == Some(*address)))
    }

    /// The address in the form of a result.
    pub(super) fn ip(&self, address: IpAddr) -> Ip {
        let range = self.ranges.iter().find(|range| range.contains(address));
        let prefix = range.map_or(IpNet::host(address).prefix(), |range| range.subnet.prefix());
        let net = IpNet::new(address, prefix).unwrap_or(IpNet::host(address));
        Ip { address: net, gateway: range.and_then(|range| range.gateway), interface: None }
    }
}

/// The addresses from start to end, both included.
fn span(start: Option<IpAddr>, end: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
    let mut current = start.filter(|start| end.is_some_and(|end| *start <= end));
    std::iter::from_fn(move || {
        let address = current?;
        current = next(address).filter(|next| end.is_some_and(|end| *next <= end));
        Some(address)
    })
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.ranges.iter().map(|range| format!("{}-{}", range.start, range.end)).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(subnet: &str, start: &str, end: &str, gateway: &str) -> Result<Range, (&'static str, String)> {
        let address = |text: &str| text.parse().ok();
        Range::new(subnet.parse().unwrap(), address(start), address(end), address(gateway))
    }

    #[test]
    fn fills_in_defaults() {
        for (subnet, start, end, gateway) in [
            ("10.1.0.0/16", "10.1.0.1", "10.1.255.254", "10.1.0.1"),
            ("10.1.2.128/30", "10.1.2.129", "10.1.2.130", "10.1.2.129"),
            ("fd00::/120", "fd00::1", "fd00::ff", "fd00::1"),
        ] {
            let range = range(subnet, "", "", "").unwrap();
            assert_eq!((range.start.to_string().as_str(), range.end.to_string().as_str()), (start, end));
            assert_eq!(range.gateway.unwrap().to_string(), gateway);
        }
    }

    #[test]
    fn errors_name_the_field() {
        for (subnet, start, end, gateway, field, text) in [
            ("10.1.0.1/16", "", "", "", "subnet", "has host bits set: for a mask of length 16 it is 10.1.0.0"),
            ("10.1.0.0/31", "", "", "", "subnet", "10.1.0.0/31 is too small to allocate from"),
            ("10.1.0.0/16", "10.2.0.1", "", "", "rangeStart", "10.2.0.1 is not in 10.1.0.0/16"),
            ("10.1.0.0/16", "", "fd00::1", "", "rangeEnd", "fd00::1 is not in 10.1.0.0/16"),
            ("10.1.0.0/16", "10.1.0.9", "10.1.0.8", "", "rangeStart", "10.1.0.9 is after the range's end 10.1.0.8"),
            ("10.1.0.0/16", "", "", "fd00::1", "gateway", "is not of the family of 10.1.0.0/16"),
        ] {
            assert_eq!(range(subnet, start, end, gateway).unwrap_err(), (field, text.to_string()));
        }
    }

    #[test]
    fn allocation_wraps_around() {
        let set = RangeSet {
            ranges: vec![
                range("10.1.0.0/29", "", "", "").unwrap(),
                range("10.2.0.0/24", "10.2.0.10", "10.2.0.11", "").unwrap(),
            ],
        };
        let list = |last: &str| {
            set.from(last.parse().ok())
                .map(|address| address.to_string()[3..].to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(list(""), "1.0.2 1.0.3 1.0.4 1.0.5 1.0.6 2.0.10 2.0.11");
        assert_eq!(list("10.1.0.4"), "1.0.5 1.0.6 2.0.10 2.0.11 1.0.2 1.0.3 1.0.4");
        assert_eq!(list("10.2.0.11"), "1.0.2 1.0.3 1.0.4 1.0.5 1.0.6 2.0.10 2.0.11");
        assert_eq!(list("192.0.2.1"), list(""));
        assert_eq!(set.ip("10.2.0.10".parse().unwrap()).address.to_string(), "10.2.0.10/24");
    }
}
