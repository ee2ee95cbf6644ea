//! What is checked before a node uses a cluster, so that a mistake is one sentence that says what to do, and not a log of
//! retries: the CA of the servers, the clock, and the name of the node.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::Tree;
use client::{Client, Resource};
use http_client::{Address, ConnectError};
use rustls::{CertificateError, ClientConfig};
use server::outbound::callout::kubeconfig;

use super::servers::list::ServerAddress;
use super::servers::{NodeServers, SERVER_NAME};
use crate::component::remote::Remote;
use crate::error::{Error, Result};

const NODES: Resource = Resource::core("nodes");
const TIMEOUT: Duration = Duration::from_secs(2);
const MACHINE_ID: &str = "/etc/machine-id";

/// Why a server cannot be used with the credentials of this machine.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    OtherCa,
    Clock,
}

/// Checks the first server that responds. Servers that do not respond are left to the kubelet, which retries.
/// `bootstrap` is the kubeconfig of a machine that has not joined yet.
pub(super) async fn check(
    given: &ServerAddress,
    servers: &NodeServers,
    node: &str,
    bootstrap: Option<&Path>,
) -> Result<()> {
    let Some(tls) = servers.tls() else { return Ok(()) };
    let known = servers.balancer.servers();
    let ordered = std::iter::once(given).chain(known.iter().filter(|other| *other != given));
    let mut unreachable = Vec::new();
    for server in ordered {
        match dial(server, &tls).await {
            Ok(()) => {
                return match bootstrap {
                    Some(file) if !servers.has_joined() => check_name(server, file, node).await,
                    _ => Ok(()),
                };
            }
            Err(Some(refusal)) => return Err(explain(server, &refusal)),
            Err(None) => unreachable.push(server.to_string()),
        }
    }
    tracing::warn!(
        servers = ?unreachable,
        "no API server is reachable, retrying: check the address of --server, the network and the firewall between them"
    );
    Ok(())
}

/// None if the server does not respond.
async fn dial(server: &ServerAddress, tls: &Arc<ClientConfig>) -> std::result::Result<(), Option<Refusal>> {
    let address = Address { name: SERVER_NAME.to_string(), ..Address::new(true, &server.host, server.port) };
    match tokio::time::timeout(TIMEOUT, http_client::connect(&address, tls)).await {
        Err(_) => Err(None),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(refusal(&error)),
    }
}

fn refusal(error: &ConnectError) -> Option<Refusal> {
    let Some(rustls::Error::InvalidCertificate(why)) = error.rustls() else { return None };
    match why {
        CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. }
        | CertificateError::Expired
        | CertificateError::ExpiredContext { .. } => Some(Refusal::Clock),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(Refusal::OtherCa),
        _ => None,
    }
}

fn explain(server: &ServerAddress, refusal: &Refusal) -> Error {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = api::time::format_seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
    Error::Response(match refusal {
        Refusal::OtherCa => format!(
            "https://{server} has a certificate of another CA than that of the cluster that this machine has joined: the \
             cluster was created again, or the connection is intercepted; `tiphys agent reset` and a new token let the \
             machine join the new one"
        ),
        Refusal::Clock => format!(
            "the certificate of https://{server} is not valid at the time of this machine, {now}: set its clock, or that \
             of the server, and try again"
        ),
    })
}

/// A name that another machine has would let both act as one node.
async fn check_name(server: &ServerAddress, bootstrap: &Path, name: &str) -> Result<()> {
    let client: Client = Remote::read(super::NAME, "bootstrap-kubeconfig", bootstrap)?.client();
    let node = match client.get(NODES, "", name).await {
        Ok(node) => node,
        Err(error) => {
            // A control plane of another kind may not let a token read nodes.
            tracing::debug!(%server, %error, "the name of the node is not checked");
            return Ok(());
        }
    };
    let own = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    match is_taken(&node, own.trim()) {
        true => Err(Error::Flags(vec![format!(
            "--node-name: {name:?} is the name of another machine, whose node is ready: choose another name, or stop that \
             machine and `kubectl delete node {name}`"
        )])),
        false => Ok(()),
    }
}

/// A node of this machine is taken over, and so is one whose machine does not run any more.
fn is_taken(node: &Tree, machine_id: &str) -> bool {
    let conditions = node.list("status.conditions").iter();
    let is_ready = conditions.filter(|one| one.str("type") == "Ready").any(|one| one.str("status") == "True");
    is_ready && node.str("status.nodeInfo.machineID") != machine_id
}

/// The TLS configuration of the first kubeconfig that can be read.
pub(super) fn tls_of(kubeconfigs: &[std::path::PathBuf]) -> Option<Arc<ClientConfig>> {
    let found = kubeconfigs.iter().find_map(|file| kubeconfig::read(file).ok())?;
    Some(found.client.tls().clone())
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn only_the_ready_node_of_another_machine_is_taken() {
        let node = |ready: &str, machine: &str| {
            tree! { "status" => tree! {
                "conditions" => list![tree! { "type" => "Ready", "status" => ready }],
                "nodeInfo" => tree! { "machineID" => machine },
            } }
        };
        let cases = [("True", "a", true), ("Unknown", "a", false), ("False", "a", false), ("True", "own", false)];
        for (ready, machine, want) in cases {
            assert_eq!(is_taken(&node(ready, machine), "own"), want, "{ready} {machine}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let server = ServerAddress { host: "10.0.0.1".to_string(), port: 6443 };
        let check = |refusal: Refusal, want: &str| {
            let text = explain(&server, &refusal).describe();
            assert!(text.contains(want) && text.contains("https://10.0.0.1:6443"), "{text}");
        };
        check(Refusal::OtherCa, "`tiphys agent reset`");
        check(Refusal::Clock, "set its clock");
        let invalid = |why| ConnectError::Tls(std::io::Error::other(rustls::Error::InvalidCertificate(why)));
        assert_eq!(refusal(&invalid(CertificateError::Expired)), Some(Refusal::Clock));
        assert_eq!(refusal(&invalid(CertificateError::UnknownIssuer)), Some(Refusal::OtherCa));
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(refusal(&ConnectError::Tls(refused)), None);
    }
}
