//! Allocation of pod CIDRs: each cluster CIDR is split into blocks, and a node gets one block of each. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A network: its first address and its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    bits: u128,
    /// 32 or 128.
    width: u8,
    pub mask: u8,
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Result<Cidr, String> {
        let wrong = || format!("invalid CIDR address: {text}");
        let (address, mask) = text.trim().split_once('/').ok_or_else(wrong)?;
        let (bits, width) = match address.parse::<IpAddr>().map_err(|_| wrong())? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let mask: u8 = mask.parse().ok().filter(|mask| *mask <= width).ok_or_else(wrong)?;
        Ok(Cidr { bits: bits & !low_bits(width - mask), width, mask })
    }

    pub(super) fn is_ipv6(self) -> bool {
        self.width == 128
    }

    fn contains(self, other: Cidr) -> bool {
        self.width == other.width
            && self.mask <= other.mask
            && self.bits == other.bits & !low_bits(self.width - self.mask)
    }
}

fn low_bits(count: u8) -> u128 {
    1u128.checked_shl(count.into()).map_or(u128::MAX, |bit| bit - 1)
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match u32::try_from(self.bits) {
            Ok(bits) if !self.is_ipv6() => write!(f, "{}/{}", std::net::Ipv4Addr::from(bits), self.mask),
            _ => write!(f, "{}/{}", std::net::Ipv6Addr::from(self.bits), self.mask),
        }
    }
}

/// The maximum number of blocks in a cluster CIDR, as a power of two, as upstream.
const MAX_BLOCK_BITS: u8 = 16;

/// The blocks of one cluster CIDR.
#[derive(Debug)]
struct Range {
    cluster: Cidr,
    block_mask: u8,
    /// The number of nodes that use each block; more than one if assigned manually.
    used: BTreeMap<u32, usize>,
    next: u32,
}

impl Range {
    fn new(cluster: Cidr, block_mask: u8) -> Result<Range, String> {
        if block_mask < cluster.mask || block_mask > cluster.width {
            return Err(format!("node CIDR mask size /{block_mask} does not fit into cluster CIDR {cluster}"));
        }
        if block_mask - cluster.mask > MAX_BLOCK_BITS {
            return Err(format!("{cluster} has more blocks of /{block_mask} than can be counted"));
        }
        Ok(Range { cluster, block_mask, used: BTreeMap::new(), next: 0 })
    }

    fn blocks(&self) -> u32 {
        1 << (self.block_mask - self.cluster.mask)
    }

    fn block(&self, at: u32) -> Cidr {
        let shift = self.cluster.width - self.block_mask;
        Cidr { bits: self.cluster.bits | (u128::from(at) << shift), width: self.cluster.width, mask: self.block_mask }
    }

    /// The blocks that overlap a network.
    fn touched(&self, network: Cidr) -> std::ops::Range<u32> {
        if network.contains(self.cluster) {
            return 0..self.blocks();
        }
        if !self.cluster.contains(network) {
            return 0..0;
        }
        let at = |bits: u128| {
            let offset = (bits - self.cluster.bits) >> (self.cluster.width - self.block_mask);
            u32::try_from(offset).unwrap_or(u32::MAX)
        };
        at(network.bits)..at(network.bits | low_bits(network.width - network.mask)) + 1
    }

    fn occupy(&mut self, network: Cidr) {
        for at in self.touched(network) {
            *self.used.entry(at).or_default() += 1;
        }
    }

    fn release(&mut self, network: Cidr) {
        for at in self.touched(network) {
            if let Some(count) = self.used.get_mut(&at) {
                *count -= 1;
                if *count == 0 {
                    self.used.remove(&at);
                }
            }
        }
    }

    /// Round-robin, so that a released block is not reused immediately.
    fn allocate(&mut self) -> Option<Cidr> {
        let blocks = self.blocks();
        let free = (0..blocks).map(|step| (self.next + step) % blocks).find(|at| !self.used.contains_key(at))?;
        self.next = (free + 1) % blocks;
        self.used.insert(free, 1);
        Some(self.block(free))
    }
}

/// All cluster CIDRs, and the allocations of nodes.
#[derive(Debug, Default)]
pub(super) struct Pool {
    ranges: Vec<Range>,
    held: BTreeMap<String, Vec<Cidr>>,
}

impl Pool {
    /// With two `ranges` these are of different IP families; service CIDRs are never allocated.
    pub(super) fn new(ranges: &[(Cidr, u8)], services: &[Cidr]) -> Result<Pool, String> {
        let made: Result<Vec<Range>, String> = ranges.iter().map(|(cidr, mask)| Range::new(*cidr, *mask)).collect();
        let mut pool = Pool { ranges: made?, held: BTreeMap::new() };
        for range in &mut pool.ranges {
            services.iter().for_each(|service| range.occupy(*service));
        }
        Ok(pool)
    }

    /// Records the existing pod CIDRs of a node.
    pub(crate) fn occupy(&mut self, node: &str, cidrs: Vec<Cidr>) {
        if self.held.get(node) == Some(&cidrs) {
            return;
        }
        self.release(node);
        for (range, cidr) in self.ranges.iter_mut().zip(&cidrs) {
            range.occupy(*cidr);
        }
        self.held.insert(node.to_string(), cidrs);
    }

    pub(super) fn release(&mut self, node: &str) {
        for (range, cidr) in self.ranges.iter_mut().zip(self.held.remove(node).unwrap_or_default()) {
            range.release(cidr);
        }
    }

    /// One block of each cluster CIDR; the same blocks until the node has them or is deleted. None if a CIDR is
    /// exhausted.
    pub(super) fn allocate(&mut self, node: &str) -> Option<Vec<Cidr>> {
        if let Some(held) = self.held.get(node) {
            return Some(held.clone());
        }
        let mut got = Vec::new();
        for range in &mut self.ranges {
            match range.allocate() {
                Some(cidr) => got.push(cidr),
                None => {
                    for (range, cidr) in self.ranges.iter_mut().zip(got) {
                        range.release(cidr);
                    }
                    return None;
                }
            }
        }
        self.held.insert(node.to_string(), got.clone());
        Some(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).expect("a network")
    }

    fn pool(ranges: &[(&str, u8)], services: &[&str]) -> Pool {
        let ranges: Vec<(Cidr, u8)> = ranges.iter().map(|(text, mask)| (cidr(text), *mask)).collect();
        let services: Vec<Cidr> = services.iter().map(|text| cidr(text)).collect();
        Pool::new(&ranges, &services).expect("a pool")
    }

    fn got(pool: &mut Pool, node: &str) -> String {
        let cidrs = pool.allocate(node).unwrap_or_default();
        cidrs.iter().map(Cidr::to_string).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn cidrs_round_trip() {
        for (text, want) in [("10.1.2.3/16", "10.1.0.0/16"), ("fd00::1/64", "fd00::/64"), ("0.0.0.0/0", "0.0.0.0/0")] {
            assert_eq!(cidr(text).to_string(), want);
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(Cidr::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn allocates_round_robin_and_releases() {
        let mut pool = pool(&[("10.0.0.0/22", 24)], &["10.0.1.0/25"]);
        assert_eq!(got(&mut pool, "a"), "10.0.0.0/24");
        assert_eq!(got(&mut pool, "a"), "10.0.0.0/24", "it was not written yet");
        assert_eq!(got(&mut pool, "b"), "10.0.2.0/24", "the services' block is passed by");
        pool.release("a");
        assert_eq!(got(&mut pool, "c"), "10.0.3.0/24");
        assert_eq!(got(&mut pool, "d"), "10.0.0.0/24");
        assert_eq!(got(&mut pool, "e"), "", "there is none left");
        pool.release("c");
        pool.occupy("f", vec![cidr("10.0.3.0/24")]);
        pool.occupy("f", vec![cidr("10.0.3.0/24")]);
        assert_eq!(got(&mut pool, "e"), "");
        pool.release("f");
        assert_eq!(got(&mut pool, "e"), "10.0.3.0/24");
    }

    #[test]
    fn allocates_all_families_or_none() {
        let mut pool = pool(&[("10.0.0.0/16", 24), ("fd00::/63", 64)], &[]);
        assert_eq!(got(&mut pool, "a"), "10.0.0.0/24,fd00::/64");
        assert_eq!(got(&mut pool, "b"), "10.0.1.0/24,fd00:0:0:1::/64");
        assert_eq!(got(&mut pool, "c"), "");
        pool.release("a");
        assert_eq!(got(&mut pool, "c"), "10.0.3.0/24,fd00::/64", "the one of the failed try is free again, later");
    }

    #[test]
    fn refuses_invalid_ranges() {
        let refused = |text: &str, mask: u8| Pool::new(&[(cidr(text), mask)], &[]).is_err();
        assert!(refused("10.0.0.0/24", 16));
        assert!(refused("10.0.0.0/8", 25));
        assert!(refused("10.0.0.0/8", 33));
        assert!(!refused("10.0.0.0/8", 24));
    }
}
