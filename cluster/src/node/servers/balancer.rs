//! Which server a connection goes to: pure decisions from the results of probes and connections, and the connections
//! that must end when their server is dead.

use std::collections::BTreeSet;
use std::time::Duration;

use stdx::fnv::fnv1a_64;
use stdx::sync::Mutex;
use tokio::sync::watch;

use super::list::ServerAddress;

/// Consecutive failures after which a server is dead.
const FAILURES: u32 = 2;
/// The interval of probes of a server that has connections, if there is another server: a dead one is left within a
/// second, since a failed probe is repeated at once.
const FAST: Duration = Duration::from_millis(250);
/// The interval of all other probes.
const SLOW: Duration = Duration::from_secs(5);
/// After failures of a server.
const RETRY: Duration = Duration::from_secs(1);

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// It accepts requests.
    Ready,
    /// It was not tried yet.
    Unknown,
    /// So many probes in succession have failed.
    Failing(u32),
    /// It responds, but starts or stops.
    NotReady,
    /// It does not respond.
    Dead,
}

/// The result of a probe or of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Ready,
    NotReady,
    /// No response in time.
    TimedOut,
    /// The connection was refused or closed: no process listens.
    Refused,
}

impl Outcome {
    pub(super) fn is_response(self) -> bool {
        matches!(self, Outcome::Ready | Outcome::NotReady)
    }
}

impl Health {
    fn after(self, outcome: Outcome) -> Health {
        match (outcome, self) {
            (Outcome::Ready, _) => Health::Ready,
            (Outcome::NotReady, _) => Health::NotReady,
            (Outcome::Refused, _) | (_, Health::Dead) => Health::Dead,
            (Outcome::TimedOut, Health::Failing(count)) if count + 1 >= FAILURES => Health::Dead,
            (Outcome::TimedOut, Health::Failing(count)) => Health::Failing(count + 1),
            (Outcome::TimedOut, _) => Health::Failing(1),
        }
    }
}

/// The servers of a node.
pub(crate) struct Balancer {
    /// The name of the node, by which nodes are spread over the servers.
    node: String,
    state: Mutex<Vec<Entry>>,
    /// Counts changes of the list.
    changed: watch::Sender<u64>,
}

struct Entry {
    address: ServerAddress,
    health: Health,
    /// Dropped connections hold it no longer.
    connections: watch::Sender<()>,
    /// Counts how often the connections of the server were cut.
    cuts: watch::Sender<u64>,
}

/// A connection to a server: while it exists, the server is probed often.
pub(super) struct ConnectionGuard {
    _counted: watch::Receiver<()>,
    cuts: watch::Receiver<u64>,
}

impl ConnectionGuard {
    /// Waits until the server is dead.
    pub(super) async fn cut(&mut self) {
        // A server that was removed from the list closes its connections itself.
        if self.cuts.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Balancer {
    pub(super) fn new(node: &str, servers: &BTreeSet<ServerAddress>) -> Balancer {
        let balancer =
            Balancer { node: node.to_string(), state: Mutex::new(Vec::new()), changed: watch::Sender::new(0) };
        balancer.set_servers(servers);
        balancer
    }

    /// Replaces the list; known servers keep their state.
    pub(super) fn set_servers(&self, servers: &BTreeSet<ServerAddress>) {
        let mut state = self.state.lock();
        state.retain(|entry| servers.contains(&entry.address));
        for address in servers {
            if !state.iter().any(|entry| entry.address == *address) {
                state.push(Entry {
                    address: address.clone(),
                    health: Health::Unknown,
                    connections: watch::Sender::new(()),
                    cuts: watch::Sender::new(0),
                });
            }
        }
        state.sort_by_key(|entry| weight(&self.node, &entry.address));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Reports changes of the list.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// All servers.
    pub(crate) fn servers(&self) -> Vec<ServerAddress> {
        self.state.lock().iter().map(|entry| entry.address.clone()).collect()
    }

    /// The servers to try for a new connection, in this order.
    pub(super) fn candidates(&self) -> Vec<ServerAddress> {
        let state = self.state.lock();
        let mut all: Vec<&Entry> = state.iter().collect();
        all.sort_by_key(|entry| entry.health);
        all.into_iter().map(|entry| entry.address.clone()).collect()
    }

    /// Counts a connection to a server; None if it was removed meanwhile.
    pub(super) fn connected(&self, address: &ServerAddress) -> Option<ConnectionGuard> {
        let state = self.state.lock();
        let entry = state.iter().find(|entry| entry.address == *address)?;
        Some(ConnectionGuard { _counted: entry.connections.subscribe(), cuts: entry.cuts.subscribe() })
    }

    /// Applies a result, and returns the state after it; None if the server was removed. The connections of a dead server are cut if another server is ready: otherwise it may only be
    /// slow, and there is nowhere to go.
    pub(super) fn report(&self, address: &ServerAddress, outcome: Outcome) -> Option<Health> {
        let mut state = self.state.lock();
        let has_other = state.iter().any(|other| other.address != *address && other.health == Health::Ready);
        let entry = state.iter_mut().find(|entry| entry.address == *address)?;
        let health = entry.health.after(outcome);
        if health != entry.health {
            tracing::info!(server = %address, from = ?entry.health, to = ?health, "server changed");
        }
        entry.health = health;
        if health == Health::Dead && has_other {
            entry.cuts.send_modify(|count| *count += 1);
        }
        Some(health)
    }

    /// The pause until the next probe of a server; None if it was removed.
    pub(super) fn pause(&self, address: &ServerAddress) -> Option<Duration> {
        let state = self.state.lock();
        let is_alone = state.len() < 2;
        let entry = state.iter().find(|entry| entry.address == *address)?;
        let is_used = entry.connections.receiver_count() > 0;
        Some(match entry.health {
            Health::Failing(_) => Duration::ZERO,
            Health::NotReady | Health::Dead => RETRY,
            Health::Ready | Health::Unknown if is_used && !is_alone => FAST,
            Health::Ready | Health::Unknown => SLOW,
        })
    }
}

/// Rendezvous hashing: nodes are spread evenly, and a node changes its server only if that server is removed.
fn weight(node: &str, address: &ServerAddress) -> u64 {
    fnv1a_64(format!("{node} {address}").bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> ServerAddress {
        ServerAddress { host: format!("10.0.0.{last}"), port: 6443 }
    }

    fn servers(count: u8) -> BTreeSet<ServerAddress> {
        (1..=count).map(server).collect()
    }

    #[test]
    fn health_follows_outcomes() {
        let cases = [
            (Health::Unknown, Outcome::Ready, Health::Ready),
            (Health::Ready, Outcome::TimedOut, Health::Failing(1)),
            (Health::Failing(1), Outcome::TimedOut, Health::Dead),
            (Health::Failing(1), Outcome::Ready, Health::Ready),
            (Health::Ready, Outcome::Refused, Health::Dead),
            (Health::Dead, Outcome::TimedOut, Health::Dead),
            (Health::Ready, Outcome::NotReady, Health::NotReady),
            (Health::NotReady, Outcome::TimedOut, Health::Failing(1)),
            (Health::Dead, Outcome::Ready, Health::Ready),
        ];
        for (health, outcome, want) in cases {
            assert_eq!(health.after(outcome), want, "{health:?} {outcome:?}");
        }
    }

    #[test]
    fn ready_servers_come_first() {
        let balancer = Balancer::new("n", &servers(3));
        let first = balancer.candidates().remove(0);
        assert_eq!(Balancer::new("n", &servers(3)).candidates()[0], first, "the order is stable");
        balancer.report(&first, Outcome::TimedOut);
        assert_eq!(balancer.candidates().last(), Some(&first));
        balancer.report(&first, Outcome::Ready);
        assert_eq!(balancer.candidates()[0], first);
        let others = BTreeSet::from([server(9)]);
        balancer.set_servers(&others);
        assert_eq!(balancer.servers(), [server(9)]);
    }

    #[test]
    fn nodes_are_spread_over_the_servers() {
        let mut counts = [0; 3];
        for number in 0..300 {
            let first = Balancer::new(&format!("node-{number}"), &servers(3)).candidates().remove(0);
            counts[usize::from(first.host.as_bytes()[7] - b'1')] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }

    #[tokio::test]
    async fn connections_of_a_dead_server_are_cut_if_there_is_another() {
        let balancer = Balancer::new("n", &servers(2));
        let mut guard = balancer.connected(&server(1)).expect("a server");
        let is_cut = async |guard: &mut ConnectionGuard| {
            tokio::time::timeout(Duration::from_millis(50), guard.cut()).await.is_ok()
        };
        balancer.report(&server(1), Outcome::Refused);
        assert!(!is_cut(&mut guard).await, "the other server is not known to be ready");
        balancer.report(&server(2), Outcome::Ready);
        balancer.report(&server(1), Outcome::TimedOut);
        assert!(is_cut(&mut guard).await);
    }

    #[test]
    fn used_servers_are_probed_often() {
        let balancer = Balancer::new("n", &servers(2));
        assert_eq!(balancer.pause(&server(1)), Some(SLOW));
        let guard = balancer.connected(&server(1));
        assert_eq!(balancer.pause(&server(1)), Some(FAST));
        balancer.report(&server(1), Outcome::TimedOut);
        assert_eq!(balancer.pause(&server(1)), Some(Duration::ZERO), "a failure is checked at once");
        drop(guard);
        balancer.set_servers(&servers(1));
        let _guard = balancer.connected(&server(1));
        balancer.report(&server(1), Outcome::Ready);
        assert_eq!(balancer.pause(&server(1)), Some(SLOW), "there is no other server to turn to");
        assert_eq!(balancer.pause(&server(2)), None);
    }
}
