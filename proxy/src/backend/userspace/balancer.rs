//! Chooses endpoints in turn, and keeps clients with theirs.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The greatest number of clients with affinity; further clients have none.
const MOST_CLIENTS: usize = 1 << 16;

/// The endpoints of a socket.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    endpoints: Vec<SocketAddr>,
    next: usize,
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
}

impl Balancer {
    pub(super) fn set_endpoints(&mut self, endpoints: &[SocketAddr], affinity: Option<Duration>) {
        self.endpoints = endpoints.to_vec();
        self.affinity = affinity;
        if affinity.is_none() {
            self.clients.clear();
        }
        self.clients.retain(|_, (endpoint, _)| endpoints.contains(endpoint));
    }

    pub(super) fn has(&self, endpoint: SocketAddr) -> bool {
        self.endpoints.contains(&endpoint)
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// The endpoint for a new connection; None if there is none.
    pub(super) fn pick(&mut self, client: IpAddr, now: Instant) -> Option<SocketAddr> {
        let timeout = self.affinity;
        let known = self.clients.get_mut(&client).filter(|(_, used)| timeout.is_some_and(|time| now - *used < time));
        if let Some((endpoint, used)) = known {
            *used = now;
            return Some(*endpoint);
        }
        let endpoint = *self.endpoints.get(self.next % self.endpoints.len().max(1))?;
        self.next = self.next.wrapping_add(1);
        if let Some(timeout) = timeout {
            self.remember(client, endpoint, now, timeout);
        }
        Some(endpoint)
    }

    fn remember(&mut self, client: IpAddr, endpoint: SocketAddr, now: Instant, timeout: Duration) {
        if self.clients.len() >= MOST_CLIENTS {
            self.clients.retain(|_, (_, used)| now - *used < timeout);
        }
        if self.clients.len() < MOST_CLIENTS {
            self.clients.insert(client, (endpoint, now));
        }
    }

    /// The endpoint did not accept: the client may get another one.
    pub(super) fn forget(&mut self, client: IpAddr) {
        self.clients.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 1, 0, number])
    }

    #[test]
    fn endpoints_take_turns() {
        let mut balancer = Balancer::default();
        let now = Instant::now();
        assert_eq!(balancer.pick(client(1), now), None);
        balancer.set_endpoints(&[endpoint(1), endpoint(2)], None);
        let picked: Vec<_> = (0..4).filter_map(|_| balancer.pick(client(1), now)).collect();
        assert_eq!(picked, [endpoint(1), endpoint(2), endpoint(1), endpoint(2)]);
    }

    #[test]
    fn clients_stay_until_the_timeout_or_the_end_of_their_endpoint() {
        let mut balancer = Balancer::default();
        let (now, timeout) = (Instant::now(), Duration::from_secs(10));
        balancer.set_endpoints(&[endpoint(1), endpoint(2)], Some(timeout));
        assert_eq!(balancer.pick(client(1), now), Some(endpoint(1)));
        assert_eq!(balancer.pick(client(2), now), Some(endpoint(2)));
        let later = now + Duration::from_secs(9);
        assert_eq!(balancer.pick(client(1), later), Some(endpoint(1)));
        // The timeout begins again with each connection.
        assert_eq!(balancer.pick(client(1), later + Duration::from_secs(9)), Some(endpoint(1)));
        assert_eq!(balancer.pick(client(2), now + Duration::from_secs(11)), Some(endpoint(1)));
        balancer.set_endpoints(&[endpoint(2)], Some(timeout));
        assert_eq!(balancer.pick(client(1), later), Some(endpoint(2)));
    }
}
