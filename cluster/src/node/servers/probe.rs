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
use super::balancer::{Balancer, Outcome};
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
            let start = || tokio::spawn(probe(balancer.clone(), address.clone(), credentials.clone()));
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
async fn probe(balancer: Arc<Balancer>, address: ServerAddress, credentials: ProbeCredentials) {
    let mut connection: Option<Https> = None;
    while let Some(pause) = balancer.pause(&address) {
        tokio::time::sleep(pause).await;
        let timeout = if connection.is_some() { TIMEOUT } else { CONNECT_TIMEOUT };
        if connection.is_none() {
            connection = connect(&address, &credentials);
        }
        // Before the node has joined, there is no CA to verify a server with.
        let Some(https) = &connection else {
            tokio::time::sleep(CONNECT_TIMEOUT).await;
            continue;
        };
        let outcome = match tokio::time::timeout(timeout, send(https)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::TimedOut,
        };
        if matches!(outcome, Outcome::TimedOut | Outcome::Refused) {
            connection = None;
        }
        balancer.report(&address, outcome);
    }
}

fn connect(address: &ServerAddress, credentials: &ProbeCredentials) -> Option<Https> {
    Https::new(&address.host, address.port, Some(SERVER_NAME), credentials.tls()?).ok()
}

async fn send(https: &Https) -> Outcome {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static(PATH);
    match https.send(request).await {
        // A server that does not let this node look at its health responds all the same.
        Ok(response) if response.status().is_server_error() => Outcome::NotReady,
        Ok(response) => match response.into_body().whole().await {
            Ok(_) => Outcome::Ready,
            Err(_) => Outcome::Refused,
        },
        Err(_) => Outcome::Refused,
    }
}
