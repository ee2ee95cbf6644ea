//! Networks minus their exceptions, as ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use network::cidr::IpNet;

/// The first and the last address of a range, as numbers.
type Range = (u128, u128);

/// The union of blocks, each without its exceptions, as ranges that neither overlap nor adjoin.
pub(super) fn ranges<'a>(blocks: impl Iterator<Item = (&'a IpNet, &'a [IpNet])>, ipv4: bool) -> Vec<(IpAddr, IpAddr)> {
    let of_family = blocks.filter(|(cidr, _)| cidr.is_ipv4() == ipv4);
    let parts = of_family.flat_map(|(cidr, except)| {
        let except = except.iter().filter(|except| except.is_ipv4() == ipv4).map(range_of);
        subtract(range_of(cidr), except.collect())
    });
    let address = |number| from_number(number, ipv4);
    merge(parts.collect()).into_iter().map(|(first, last)| (address(first), address(last))).collect()
}

fn range_of(net: &IpNet) -> Range {
    (to_number(net.network().address), to_number(net.last()))
}

/// The parts of a range that no other range covers.
fn subtract(range: Range, mut others: Vec<Range>) -> Vec<Range> {
    others.sort_unstable();
    let mut parts = Vec::new();
    let mut next = Some(range.0);
    for (first, last) in others {
        let Some(start) = next else { break };
        if last < start {
            continue;
        }
        if first > range.1 {
            break;
        }
        if first > start {
            parts.push((start, first - 1));
        }
        next = last.checked_add(1).filter(|next| *next <= range.1);
    }
    parts.extend(next.map(|start| (start, range.1)));
    parts
}

/// Joins ranges that overlap or adjoin.
fn merge(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn from_number(number: u128, ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::from_bits(number as u32).into() } else { Ipv6Addr::from_bits(number).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_subtracted_and_blocks_merged() {
        for (blocks, expected) in [
            ("10.0.0.0/24", "10.0.0.0-10.0.0.255"),
            ("10.0.0.5/24", "10.0.0.0-10.0.0.255"),
            ("10.0.0.0/24 -10.0.0.0/25", "10.0.0.128-10.0.0.255"),
            ("10.0.0.0/24 -10.0.0.128/25", "10.0.0.0-10.0.0.127"),
            ("10.0.0.0/24 -10.0.0.4/30", "10.0.0.0-10.0.0.3 10.0.0.8-10.0.0.255"),
            ("10.0.0.0/24 -10.0.0.4/30 -10.0.0.6/31 -10.0.0.8/32", "10.0.0.0-10.0.0.3 10.0.0.9-10.0.0.255"),
            ("10.0.0.0/24 -10.0.0.0/24", ""),
            ("10.0.0.0/24 -10.0.0.0/8", ""),
            ("10.0.0.0/24 -10.0.1.0/24 -9.0.0.0/8", "10.0.0.0-10.0.0.255"),
            // An exception of one block does not concern another.
            ("10.0.0.0/24 -10.0.0.0/25 10.0.0.0/28", "10.0.0.0-10.0.0.15 10.0.0.128-10.0.0.255"),
            ("10.0.0.0/25 10.0.0.128/25", "10.0.0.0-10.0.0.255"),
            ("10.0.1.0/24 10.0.0.0/16", "10.0.0.0-10.0.255.255"),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
            ("0.0.0.0/0 -128.0.0.0/1", "0.0.0.0-127.255.255.255"),
            ("0.0.0.0/0 -0.0.0.0/1", "128.0.0.0-255.255.255.255"),
            ("::/0 -8000::/1", "::-7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fd00::/64 -fd00::/128", "fd00::1-fd00::ffff:ffff:ffff:ffff"),
        ] {
            let mut list: Vec<(IpNet, Vec<IpNet>)> = Vec::new();
            for text in blocks.split(' ') {
                match text.strip_prefix('-') {
                    Some(except) => list.last_mut().unwrap().1.push(except.parse().unwrap()),
                    None => list.push((text.parse().unwrap(), Vec::new())),
                }
            }
            let ipv4 = list[0].0.is_ipv4();
            let of = |ipv4| ranges(list.iter().map(|(cidr, except)| (cidr, except.as_slice())), ipv4);
            let texts: Vec<String> = of(ipv4).iter().map(|(first, last)| format!("{first}-{last}")).collect();
            assert_eq!(texts.join(" "), expected, "{blocks}");
            assert!(of(!ipv4).is_empty());
        }
    }
}
