//! Limits the connections of a source that are not authenticated. Each of them costs a file descriptor and buffers, and
//! nothing but its source is known.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Mutex;

/// The most connections that are counted at once.
#[derive(Debug, Clone, Copy)]
pub struct SourceLimits {
    /// Of all sources together.
    pub total: usize,
    /// Of one source.
    pub per_source: usize,
}

/// The connections that are counted, by source.
#[derive(Debug)]
pub struct Sources {
    limits: SourceLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_source: HashMap<IpAddr, usize>,
}

impl Sources {
    /// None is counted yet.
    pub fn new(limits: SourceLimits) -> Arc<Sources> {
        Arc::new(Sources { limits, counts: Mutex::default() })
    }

    /// Counts a connection; None where its source, or all sources together, have too many.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let source = network_of(address);
        let mut counts = self.counts.lock();
        let count = counts.by_source.get(&source).copied().unwrap_or(0);
        if counts.total >= self.limits.total || count >= self.limits.per_source {
            return None;
        }
        counts.total += 1;
        counts.by_source.insert(source, count + 1);
        Some(ConnectionPermit { sources: self.clone(), source, is_held: AtomicBool::new(true) })
    }

    fn release(&self, source: IpAddr) {
        let mut counts = self.counts.lock();
        counts.total = counts.total.saturating_sub(1);
        match counts.by_source.get_mut(&source) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.by_source.remove(&source)),
        }
    }
}

/// One machine has at least a /64 of IPv6 addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

/// A connection that is counted until it is released or dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    sources: Arc<Sources>,
    source: IpAddr,
    is_held: AtomicBool,
}

impl ConnectionPermit {
    /// The client is known: from here on other limits apply to it.
    pub fn release(&self) {
        if self.is_held.load(Ordering::Relaxed) && self.is_held.swap(false, Ordering::AcqRel) {
            self.sources.release(self.source);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_source_has_a_share_until_it_is_released() {
        let sources = Sources::new(SourceLimits { total: 3, per_source: 2 });
        let admit = |text: &str| sources.admit(ip(text));
        let (first, second) = (admit("10.0.0.1").expect("a seat"), admit("::ffff:10.0.0.1").expect("a seat"));
        assert!(admit("10.0.0.1").is_none(), "its share is taken");
        let other = admit("fd00::1").expect("a seat");
        assert!(admit("10.0.0.2").is_none(), "all are taken");
        drop(other);
        first.release();
        first.release();
        drop(first);
        assert!(admit("10.0.0.1").is_some(), "one was given back, once");
        let _kept = admit("10.0.0.1").expect("a seat");
        assert!(admit("10.0.0.1").is_none());
        drop(second);
        drop(_kept);
        assert!(sources.counts.lock().by_source.is_empty(), "nothing is kept of sources that left");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_source() {
        assert_eq!(network_of(ip("fd00::1")), network_of(ip("fd00::2")));
        assert_ne!(network_of(ip("fd00:0:0:1::1")), network_of(ip("fd00::1")));
        assert_ne!(network_of(ip("10.0.0.1")), network_of(ip("10.0.0.2")));
    }
}
