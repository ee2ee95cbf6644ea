//! Probes of the servers: `/readyz` over a connection that is kept, one task for each server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Transport;
use client::https::Https;
use http::Request;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SERVER_NAME;
use super::balancer::{Balancer, Health, Outcome};
use super::list::ServerAddress;

/// Without the checks that read the store: the probes of many nodes must not load it.
const PATH: &str = "/readyz?exclude=etcd&exclude=etcd-readiness";
const TIMEOUT: Duration = Duration::from_millis(350);
/// A first connection needs a handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The kubeconfigs with the CA and the certificate of this node; the first that exists is used.
#[derive(Clone)]
pub(super) struct ProbeCredentials(pub(super) Vec<PathBuf>);

impl ProbeCredentials {
    pub(super) fn tls(&self) -> Option<Arc<ClientConfig>> {
        crate::node::preflight::tls_of(&self.0)
    }
}

/// Probes all servers of the list until it is stopped.
pub(super) async fn run(balancer: Arc<Balancer>, credentials: ProbeCredentials, mut stopped: watch::Receiver<bool>) {
    let mut changes = balancer.changes();
    let mut running: BTreeMap<ServerAddress, JoinHandle<()>> = BTreeMap::new();
    loop {
        let servers = balancer.servers();
        running.retain(|address, task| {
            let is_left = servers.contains(address);
            if !is_left {
                task.abort();
            }
            is_left
        });
        for address in servers {
            let (target, credentials) = (address.clone(), credentials.clone());
            let start = || {
                let connect = move || connect(&target, &credentials);
                tokio::spawn(probe(balancer.clone(), address.clone(), connect))
            };
            running.entry(address.clone()).or_insert_with(start);
        }
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            changed = changes.changed() => if changed.is_err() { break },
        }
    }
    running.values().for_each(JoinHandle::abort);
}

/// Probes one server until it is removed from the list.
async fn probe<T: Transport>(balancer: Arc<Balancer>, address: ServerAddress, connect: impl Fn() -> Option<T>) {
    let mut connection: Option<T> = None;
    let mut has_responded = false;
    while let Some(pause) = balancer.pause(&address) {
        tokio::time::sleep(pause).await;
        if connection.is_none() {
            connection = connect();
        }
        // Before the node has joined, there is no CA to verify a server with.
        let Some(transport) = &connection else {
            tokio::time::sleep(CONNECT_TIMEOUT).await;
            continue;
        };
        let timeout = if has_responded { TIMEOUT } else { CONNECT_TIMEOUT };
        let outcome = match tokio::time::timeout(timeout, send(transport)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::TimedOut,
        };
        // A probe that was lost is repeated on the same connection: a handshake would need more time than is left.
        if balancer.report(&address, outcome) == Some(Health::Dead) {
            connection = None;
        }
        has_responded = connection.is_some() && (has_responded || outcome.is_response());
    }
}

fn connect(address: &ServerAddress, credentials: &ProbeCredentials) -> Option<Https> {
    Https::new(&address.host, address.port, Some(SERVER_NAME), credentials.tls()?).ok()
}

async fn send(transport: &impl Transport) -> Outcome {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static(PATH);
    match transport.send(request).await {
        // A server that does not let this node look at its health responds all the same.
        Ok(response) if response.status().is_server_error() => Outcome::NotReady,
        Ok(response) => match response.into_body().whole().await {
            Ok(_) => Outcome::Ready,
            Err(_) => Outcome::Refused,
        },
        Err(_) => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use client::{Body, ResponseFuture};
    use tokio::time::Instant;

    use super::*;

    /// What `docs/operations/nodes.md` promises.
    const LEFT_WITHIN: Duration = Duration::from_secs(1);

    /// A server that responds until a moment, and then lets requests wait for ever, like a process that was stopped. A new
    /// connection to it is accepted by its kernel.
    #[derive(Clone)]
    struct StallingServer {
        stalls: watch::Receiver<bool>,
    }

    impl Transport for StallingServer {
        fn send(&self, _request: Request<Bytes>) -> ResponseFuture<'_> {
            let is_stalled = *self.stalls.borrow();
            Box::pin(async move {
                match is_stalled {
                    true => std::future::pending().await,
                    false => Ok(http::Response::new(Body::new(http_body_util::Full::new(Bytes::new())))),
                }
            })
        }
    }

    fn server(last: u8) -> ServerAddress {
        ServerAddress { host: format!("10.0.0.{last}"), port: 6443 }
    }

    /// How long a connection to a server lasts once the server stalls, so long after the connection was opened.
    async fn left_after(phase: Duration) -> Duration {
        let (stalling, other) = (server(1), server(2));
        let balancer = Arc::new(Balancer::new("n", &BTreeSet::from([stalling.clone(), other.clone()])));
        let (stall, stalls) = watch::channel(false);
        let (_never, never) = watch::channel(false);
        let probes = [(stalling.clone(), stalls), (other, never)].map(|(address, stalls)| {
            let server = StallingServer { stalls };
            tokio::spawn(probe(balancer.clone(), address, move || Some(server.clone())))
        });
        let mut guard = balancer.connected(&stalling).expect("a server");
        // Both are known to be ready, and the one with a connection is probed often.
        tokio::time::sleep(Duration::from_secs(30) + phase).await;
        let started = Instant::now();
        stall.send_replace(true);
        guard.cut().await;
        probes.iter().for_each(JoinHandle::abort);
        started.elapsed()
    }

    /// In simulated time, whenever between two probes the server stalls.
    #[tokio::test(start_paused = true)]
    async fn a_stalled_server_is_left_within_a_second() {
        let mut longest = Duration::ZERO;
        for phase in (0..500).step_by(10) {
            longest = longest.max(left_after(Duration::from_millis(phase)).await);
        }
        assert!(longest <= LEFT_WITHIN, "{longest:?}");
        assert!(longest >= TIMEOUT, "one lost probe alone is no reason: {longest:?}");
    }
}
