//! Limits the connections of a source that are not authenticated. Each of them costs a file descriptor and buffers, and
//! nothing but its source is known. When all sources together have too many, the one with most connections loses its
//! oldest, so that a few sources cannot keep the others out.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

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
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    total: usize,
    /// The number of the next connection: the oldest of a source has the lowest.
    next: u64,
    by_source: HashMap<IpAddr, BTreeMap<u64, Arc<Eviction>>>,
}

impl Connections {
    fn count_of(&self, source: IpAddr) -> usize {
        self.by_source.get(&source).map_or(0, BTreeMap::len)
    }

    fn add(&mut self, source: IpAddr, eviction: Arc<Eviction>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.total += 1;
        self.by_source.entry(source).or_default().insert(number, eviction);
        number
    }

    fn remove(&mut self, source: IpAddr, number: u64) -> Option<Arc<Eviction>> {
        let connections = self.by_source.get_mut(&source)?;
        let removed = connections.remove(&number)?;
        self.total -= 1;
        if connections.is_empty() {
            self.by_source.remove(&source);
        }
        Some(removed)
    }

    /// Evicts the oldest connection of the largest source, if that has more than a source with `count` connections will
    /// have.
    fn evict_oldest(&mut self, count: usize) -> bool {
        let largest = self.by_source.iter().max_by_key(|(_, connections)| connections.len());
        let Some((&source, connections)) = largest.filter(|(_, connections)| connections.len() > count + 1) else {
            return false;
        };
        let oldest = connections.keys().next().copied();
        let evicted = oldest.and_then(|number| self.remove(source, number));
        evicted.inspect(|eviction| eviction.notify()).is_some()
    }
}

/// Whether a connection has to end, and the task that waits for it.
#[derive(Debug, Default)]
struct Eviction(Mutex<(bool, Option<Waker>)>);

impl Eviction {
    fn notify(&self) {
        let mut state = self.0.lock();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    async fn wait(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.0.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Sources {
    /// None is counted yet.
    pub fn new(limits: SourceLimits) -> Arc<Sources> {
        Arc::new(Sources { limits, connections: Mutex::default() })
    }

    /// Counts a connection; None where its source, or all sources together, have too many.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let source = network_of(address);
        let mut connections = self.connections.lock();
        let count = connections.count_of(source);
        if count >= self.limits.per_source
            || (connections.total >= self.limits.total && !connections.evict_oldest(count))
        {
            return None;
        }
        let eviction = Arc::<Eviction>::default();
        let number = connections.add(source, eviction.clone());
        Some(ConnectionPermit { sources: self.clone(), source, number, eviction, is_held: AtomicBool::new(true) })
    }
}

/// One machine has at least a /64 of IPv6 addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

/// A connection that is counted until it is released, evicted or dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    sources: Arc<Sources>,
    source: IpAddr,
    number: u64,
    eviction: Arc<Eviction>,
    is_held: AtomicBool,
}

impl ConnectionPermit {
    /// The client is known: from here on other limits apply to it.
    pub fn release(&self) {
        if self.is_held() && self.is_held.swap(false, Ordering::AcqRel) {
            self.sources.connections.lock().remove(self.source, self.number);
        }
    }

    /// Whether it was not released yet.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Ends when the connection has to be closed in favour of another source; never after it was released.
    pub async fn evicted(&self) {
        self.eviction.wait().await;
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
        assert!(admit("fd00::2").is_none(), "all are taken, and no source has more");
        drop(other);
        first.release();
        assert!(!first.is_held() && second.is_held());
        first.release();
        drop(first);
        assert!(admit("10.0.0.1").is_some(), "one was given back, once");
        let _kept = admit("10.0.0.1").expect("a seat");
        assert!(admit("10.0.0.1").is_none());
        drop(second);
        drop(_kept);
        assert!(sources.connections.lock().by_source.is_empty(), "nothing is kept of sources that left");
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        let wait = std::pin::pin!(permit.evicted());
        wait.poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_few_sources_cannot_keep_others_out() {
        let sources = Sources::new(SourceLimits { total: 6, per_source: 3 });
        let admit = |text: &str| sources.admit(ip(text));
        let take = |text: &str| (0..3).map(|_| admit(text).expect("a seat")).collect::<Vec<_>>();
        let (first, second) = (take("10.0.0.1"), take("10.0.0.2"));
        first[0].release();
        let _own = admit("10.0.0.1").expect("the released seat");
        let other = admit("10.0.0.3").expect("a seat of the largest source");
        let evicted = |permits: &[ConnectionPermit]| permits.iter().filter(|permit| is_evicted(permit)).count();
        assert_eq!(evicted(&first) + evicted(&second), 1);
        assert!(is_evicted(&second[0]) || is_evicted(&first[1]), "the oldest that is counted");
        assert!(!is_evicted(&first[0]) && !is_evicted(&other));
        let _more = admit("10.0.0.3").expect("another one");
        assert!(admit("10.0.0.3").is_none(), "no source has more than this one would");
        drop((first, second));
        assert_eq!(sources.connections.lock().total, 3, "an evicted connection is counted off once");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_source() {
        assert_eq!(network_of(ip("fd00::1")), network_of(ip("fd00::2")));
        assert_ne!(network_of(ip("fd00:0:0:1::1")), network_of(ip("fd00::1")));
        assert_ne!(network_of(ip("10.0.0.1")), network_of(ip("10.0.0.2")));
    }
}
