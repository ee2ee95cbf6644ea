//! Drops the packets of a flood in the kernel: a filter on the sockets refuses its source for a moment, before the
//! packets take the place of others in the receive queue.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use stdx::sync::Mutex;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// How long a source is blocked at first. A source that goes on is blocked for twice as long each time.
const FIRST_BLOCK: Duration = Duration::from_millis(250);
const LONGEST_BLOCK: Duration = Duration::from_secs(4);
/// Sources that are blocked at once. Further ones are refused by the server itself.
const MAX_BLOCKED: usize = 32;

// Instructions of a classic BPF program (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
// Offsets of linux/filter.h: the protocol of the packet, and its network header.
const PROTOCOL: u32 = (-0x1000i32) as u32;
const NETWORK: u32 = (-0x10_0000i32) as u32;
const IPV4: u32 = 0x0800;
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);
const ACCEPT: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);

#[derive(Default)]
pub(super) struct FloodGuard(Mutex<State>);

/// The last time that a source was blocked.
struct Block {
    source: IpAddr,
    length: Duration,
    end: Instant,
}

#[derive(Default)]
struct State {
    blocked: Vec<IpAddr>,
    /// The blocks that have ended less than their length ago.
    recent: Vec<Block>,
    sockets: Vec<Weak<UdpSocket>>,
}

impl FloodGuard {
    /// Guards a socket until it is closed.
    pub(super) fn add(&self, socket: &Arc<UdpSocket>) {
        let mut state = self.0.lock();
        state.sockets.retain(|socket| socket.strong_count() > 0);
        state.sockets.push(Arc::downgrade(socket));
        state.apply();
    }

    /// Blocks a source for a while, and returns how long; None if it is blocked, or too many are.
    pub(super) fn block(self: &Arc<FloodGuard>, address: IpAddr, now: Instant) -> Option<Duration> {
        let address = address.to_canonical();
        let mut state = self.0.lock();
        if state.blocked.len() >= MAX_BLOCKED || state.blocked.contains(&address) {
            return None;
        }
        state.blocked.push(address);
        let length = state.next_length(address, now);
        state.apply();
        drop(state);
        let guard = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(length).await;
            let mut state = guard.0.lock();
            state.blocked.retain(|other| *other != address);
            state.apply();
        });
        Some(length)
    }
}

impl State {
    /// The length of a source's next block, which is recorded.
    fn next_length(&mut self, source: IpAddr, now: Instant) -> Duration {
        self.recent.retain(|block| block.end + block.length > now);
        let last = self.recent.iter().position(|block| block.source == source);
        let last = last.map(|at| self.recent.swap_remove(at));
        let length = last.map_or(FIRST_BLOCK, |block| (block.length * 2).min(LONGEST_BLOCK));
        if self.recent.len() < 2 * MAX_BLOCKED {
            self.recent.push(Block { source, length, end: now + length });
        }
        length
    }

    fn apply(&self) {
        let program = program(&self.blocked);
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            let socket = SockRef::from(&*socket);
            let applied = match self.blocked.is_empty() {
                // Without an earlier filter there is nothing to detach.
                true => socket.detach_filter().or(Ok(())),
                false => socket.attach_filter(&program),
            };
            if let Err(error) = applied {
                tracing::debug!(%error, "failed to filter the packets of a flood");
            }
        }
    }
}

/// Drops packets of these sources. Each comparison is followed by its own return, so that no jump is far.
fn program(blocked: &[IpAddr]) -> Vec<SockFilter> {
    let equal = |value: u32, otherwise: u8| SockFilter::new(JUMP_IF_EQUAL, 0, otherwise, value);
    let load = |offset: u32| SockFilter::new(LOAD_WORD, 0, 0, offset);
    let mut v4 = vec![load(NETWORK.wrapping_add(12))];
    let mut v6 = Vec::new();
    for address in blocked {
        match address {
            IpAddr::V4(address) => v4.extend([equal(address.to_bits(), 1), DROP]),
            IpAddr::V6(address) => v6.extend(v6_comparison(*address)),
        }
    }
    v4.push(ACCEPT);
    v6.push(ACCEPT);
    let skipped = u8::try_from(v4.len()).unwrap_or(u8::MAX);
    let mut program = vec![load(PROTOCOL), equal(IPV4, skipped)];
    program.extend(v4);
    program.extend(v6);
    program
}

/// Compares the four words of a source address.
fn v6_comparison(address: Ipv6Addr) -> Vec<SockFilter> {
    let words = [96, 64, 32, 0].map(|shift| (address.to_bits() >> shift) as u32);
    let mut program = Vec::new();
    for (at, word) in (0u8..).zip(words) {
        program.push(SockFilter::new(LOAD_WORD, 0, 0, NETWORK.wrapping_add(8 + 4 * u32::from(at))));
        // To the end of this comparison: the rest of the words, two instructions each, and the drop.
        program.push(SockFilter::new(JUMP_IF_EQUAL, 0, 2 * (3 - at) + 1, word));
    }
    program.push(DROP);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn received(socket: &UdpSocket) -> Vec<u8> {
        let mut bytes = [0; 16];
        let received = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut bytes)).await;
        bytes[..received.expect("in time").expect("a packet")].to_vec()
    }

    #[tokio::test]
    async fn a_source_that_goes_on_is_blocked_for_longer() {
        let (mut state, start) = (State::default(), Instant::now());
        let (source, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut now = start;
        let mut lengths = Vec::new();
        for _ in 0..6 {
            let length = state.next_length(source, now);
            lengths.push(length.as_millis());
            now += length + Duration::from_millis(1);
        }
        assert_eq!(lengths, [250, 500, 1000, 2000, 4000, 4000]);
        assert_eq!(state.next_length(other, now), FIRST_BLOCK);
        assert_eq!(state.next_length(source, now + 2 * LONGEST_BLOCK), FIRST_BLOCK, "it has stopped");
        for number in 0..1000 {
            state.next_length(IpAddr::from([10, 1, (number / 256) as u8, (number % 256) as u8]), now);
        }
        assert!(state.recent.len() <= 2 * MAX_BLOCKED);
    }

    #[tokio::test]
    async fn the_kernel_drops_blocked_sources() {
        for (listen, blocked, other) in [("127.0.0.1:0", "127.0.0.7:0", "127.0.0.8:0"), ("[::1]:0", "[::1]:0", "")] {
            let guard = Arc::new(FloodGuard::default());
            let server = Arc::new(UdpSocket::bind(listen).await.expect("a socket"));
            guard.add(&server);
            let to = server.local_addr().expect("an address");
            let flood = UdpSocket::bind(blocked).await.expect("a socket");
            flood.send_to(b"before", to).await.expect("sent");
            assert_eq!(received(&server).await, b"before");
            guard.block(flood.local_addr().expect("an address").ip(), Instant::now());
            flood.send_to(b"blocked", to).await.expect("sent");
            if !other.is_empty() {
                let other = UdpSocket::bind(other).await.expect("a socket");
                other.send_to(b"other", to).await.expect("sent");
                assert_eq!(received(&server).await, b"other");
            }
            // Unblocked after a while: what was sent meanwhile is lost.
            let unblocked = async {
                while !guard.0.lock().blocked.is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), unblocked).await.expect("it is unblocked");
            flood.send_to(b"after", to).await.expect("sent");
            assert_eq!(received(&server).await, b"after");
        }
    }

    #[tokio::test]
    async fn many_sources_can_be_blocked() {
        let guard = Arc::new(FloodGuard::default());
        let server = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        guard.add(&server);
        for number in 0..100u8 {
            guard.block([127, 0, 1, number].into(), Instant::now());
            guard.block(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into(), Instant::now());
        }
        let program = program(&guard.0.lock().blocked);
        assert!(SockRef::from(&*server).attach_filter(&program).is_ok(), "the kernel accepts it");
        let to = server.local_addr().expect("an address");
        let other = UdpSocket::bind("127.0.0.8:0").await.expect("a socket");
        other.send_to(b"other", to).await.expect("sent");
        assert_eq!(received(&server).await, b"other");
    }
}
