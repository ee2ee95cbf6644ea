//! Allocation of pod CIDRs: each cluster CIDR is split into blocks, and a node gets one block of each. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use stdx::cidr::{InvalidCidr, IpNet, bits, from_bits, width};

/// The maximum number of blocks in a cluster CIDR, as a power of two, as upstream.
const MAX_BLOCK_BITS: u8 = 16;

/// Why the cluster CIDRs cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PoolError {
    #[error(transparent)]
    Cidr(#[from] InvalidCidr),
    #[error("--cluster-cidr names no range")]
    NoRange,
    #[error("node CIDR mask size /{block_mask} does not fit into cluster CIDR {cluster}")]
    MaskSize { cluster: IpNet, block_mask: u8 },
    #[error("{cluster} has more blocks of /{block_mask} than can be counted")]
    TooManyBlocks { cluster: IpNet, block_mask: u8 },
}

/// The blocks of one cluster CIDR.
#[derive(Debug)]
struct Range {
    cluster: IpNet,
    block_mask: u8,
    /// The number of nodes that use each block; more than one if assigned manually.
    used: BTreeMap<u32, usize>,
    next: u32,
}

impl Range {
    fn new(cluster: IpNet, block_mask: u8) -> Result<Range, PoolError> {
        if block_mask < cluster.prefix() || block_mask > width(cluster.address) {
            return Err(PoolError::MaskSize { cluster, block_mask });
        }
        if block_mask - cluster.prefix() > MAX_BLOCK_BITS {
            return Err(PoolError::TooManyBlocks { cluster, block_mask });
        }
        Ok(Range { cluster: cluster.network(), block_mask, used: BTreeMap::new(), next: 0 })
    }

    fn blocks(&self) -> u32 {
        1 << (self.block_mask - self.cluster.prefix())
    }

    fn block(&self, at: u32) -> Option<IpNet> {
        let first = bits(self.cluster.address) | (u128::from(at) << self.block_bits());
        IpNet::new(from_bits(first, self.cluster.is_ipv4()), self.block_mask)
    }

    /// The number of bits of an address inside of a block.
    fn block_bits(&self) -> u8 {
        width(self.cluster.address) - self.block_mask
    }

    /// The blocks that overlap a network.
    fn touched(&self, network: IpNet) -> std::ops::Range<u32> {
        if network.contains_net(&self.cluster) {
            return 0..self.blocks();
        }
        if !self.cluster.contains_net(&network) {
            return 0..0;
        }
        let at = |address: IpAddr| {
            let offset = (bits(address) - bits(self.cluster.address)) >> self.block_bits();
            u32::try_from(offset).unwrap_or(u32::MAX)
        };
        at(network.network().address)..at(network.last()) + 1
    }

    fn allocate_existing(&mut self, network: IpNet) {
        for at in self.touched(network) {
            *self.used.entry(at).or_default() += 1;
        }
    }

    fn release(&mut self, network: IpNet) {
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
    fn allocate(&mut self) -> Option<IpNet> {
        let blocks = self.blocks();
        let free = (0..blocks).map(|step| (self.next + step) % blocks).find(|at| !self.used.contains_key(at))?;
        self.next = (free + 1) % blocks;
        self.used.insert(free, 1);
        self.block(free)
    }
}

/// All cluster CIDRs, and the allocations of nodes.
#[derive(Debug, Default)]
pub(super) struct Pool {
    ranges: Vec<Range>,
    held: BTreeMap<String, Vec<IpNet>>,
}

impl Pool {
    /// With two `ranges` these are of different IP families; service CIDRs are never allocated.
    pub(super) fn new(ranges: &[(IpNet, u8)], services: &[IpNet]) -> Result<Pool, PoolError> {
        let made: Result<Vec<Range>, PoolError> = ranges.iter().map(|(cidr, mask)| Range::new(*cidr, *mask)).collect();
        let mut pool = Pool { ranges: made?, held: BTreeMap::new() };
        for range in &mut pool.ranges {
            services.iter().for_each(|service| range.allocate_existing(*service));
        }
        Ok(pool)
    }

    /// Records the existing pod CIDRs of a node.
    pub(crate) fn allocate_existing(&mut self, node: &str, cidrs: Vec<IpNet>) {
        if self.held.get(node) == Some(&cidrs) {
            return;
        }
        self.release(node);
        for (range, cidr) in self.ranges.iter_mut().zip(&cidrs) {
            range.allocate_existing(*cidr);
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
    pub(super) fn allocate(&mut self, node: &str) -> Option<Vec<IpNet>> {
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

    fn cidr(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    fn pool(ranges: &[(&str, u8)], services: &[&str]) -> Pool {
        let ranges: Vec<(IpNet, u8)> = ranges.iter().map(|(text, mask)| (cidr(text), *mask)).collect();
        let services: Vec<IpNet> = services.iter().map(|text| cidr(text)).collect();
        Pool::new(&ranges, &services).expect("a pool")
    }

    fn got(pool: &mut Pool, node: &str) -> String {
        let cidrs = pool.allocate(node).unwrap_or_default();
        cidrs.iter().map(IpNet::to_string).collect::<Vec<_>>().join(",")
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
        pool.allocate_existing("f", vec![cidr("10.0.3.0/24")]);
        pool.allocate_existing("f", vec![cidr("10.0.3.0/24")]);
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
