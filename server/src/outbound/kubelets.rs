//! Connections to kubelets: which of a node's addresses is used, with which certificate, and the timeout.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use api::status::Status;
use arc_swap::ArcSwap;
use http_client::{Identity, Trust, tls};
use rustls::ClientConfig;
use stdx::sync::Mutex;

/// The port of a kubelet whose node does not report one.
const PORT: u16 = 10250;
/// A kubelet with this feature accepts every protocol directly.
pub const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// The connections to kubelets: which address of a node is used, and how its certificate is verified.
pub struct Kubelets {
    tls: ArcSwap<ClientConfig>,
    /// For clients that skip the verification of the kubelet's certificate.
    unverified: ArcSwap<ClientConfig>,
    /// Address types in the order of preference.
    preferred: Vec<String>,
    resolver: Resolver,
    pub timeout: Duration,
}

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("preferred", &self.preferred).field("timeout", &self.timeout).finish()
    }
}

/// Upstream's order.
pub const PREFERRED: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
pub const TIMEOUT: Duration = Duration::from_secs(5);

impl Kubelets {
    /// `identity` is the client certificate for kubelets.
    pub fn new(
        trust: &Trust,
        identity: Option<&Identity>,
        preferred: Vec<String>,
        timeout: Duration,
    ) -> Result<Kubelets, rustls::Error> {
        Ok(Kubelets {
            tls: ArcSwap::from_pointee(tls::config(trust, identity, &[tls::HTTP1])?),
            unverified: ArcSwap::from_pointee(tls::config(&Trust::InsecureSkipVerify, identity, &[tls::HTTP1])?),
            preferred,
            resolver: Resolver::default(),
            timeout,
        })
    }

    /// New connections present another certificate.
    pub fn exchange(&self, trust: &Trust, identity: Option<&Identity>) -> Result<(), rustls::Error> {
        let verified = tls::config(trust, identity, &[tls::HTTP1])?;
        let unverified = tls::config(&Trust::InsecureSkipVerify, identity, &[tls::HTTP1])?;
        self.tls.store(Arc::new(verified));
        self.unverified.store(Arc::new(unverified));
        Ok(())
    }

    /// The address of a node's kubelet.
    pub async fn kubelet(&self, node: &Tree) -> Result<Kubelet, Status> {
        let host = self.address(node).await?.to_string();
        let port = node.int("status.daemonEndpoints.kubeletEndpoint.Port");
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(PORT);
        let features = node.list("status.declaredFeatures");
        let takes_websockets = features.iter().any(|feature| feature.as_str() == Some(WEBSOCKETS));
        Ok(Kubelet { host, port, takes_websockets, tls: self.tls.load_full(), unverified: self.unverified.load_full() })
    }

    async fn address<'a>(&self, node: &'a Tree) -> Result<&'a str, Status> {
        let all = node.list("status.addresses");
        let of = |kind: &String| all.iter().find(|address| address.str("type") == kind.as_str());
        let candidates: Vec<&str> = self.preferred.iter().filter_map(of).map(|one| one.str("address")).collect();
        // The name of a node may not resolve anywhere else. The last address is used without a check, as no alternative
        // is left.
        let mut found = None;
        for (at, address) in candidates.iter().enumerate() {
            if at + 1 == candidates.len() || self.resolver.resolves(address).await {
                found = Some(*address);
                break;
            }
        }
        found.ok_or_else(|| {
            let known: Vec<String> =
                all.iter().map(|address| format!("{{{} {}}}", address.str("type"), address.str("address"))).collect();
            let message = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
            Status::new(500, "", message)
        })
    }
}

/// How long the result of a name lookup is cached.
const RESOLVED_FOR: Duration = Duration::from_secs(60);
/// The timeout of a name lookup.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of cached names; then the cache is emptied.
const MOST_NAMES: usize = 10_000;

/// Knows which names of nodes resolve.
#[derive(Default)]
struct Resolver(Mutex<BTreeMap<String, (bool, Instant)>>);

impl Resolver {
    async fn resolves(&self, host: &str) -> bool {
        if host.parse::<IpAddr>().is_ok() {
            return true;
        }
        if let Some(known) = self.known(host) {
            return known;
        }
        let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((host, PORT))).await;
        let resolves = found.is_ok_and(|found| found.is_ok_and(|mut addresses| addresses.next().is_some()));
        self.record(host, resolves);
        resolves
    }

    fn known(&self, host: &str) -> Option<bool> {
        let known = self.0.lock();
        known.get(host).filter(|(_, at)| at.elapsed() < RESOLVED_FOR).map(|(resolves, _)| *resolves)
    }

    fn record(&self, host: &str, resolves: bool) {
        let mut known = self.0.lock();
        if known.len() >= MOST_NAMES {
            known.clear();
        }
        known.insert(host.to_string(), (resolves, Instant::now()));
    }
}

/// The kubelet of one node.
pub struct Kubelet {
    pub host: String,
    pub port: u16,
    pub takes_websockets: bool,
    pub tls: Arc<ClientConfig>,
    pub unverified: Arc<ClientConfig>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn skips_names_that_do_not_resolve() {
        let preferred = PREFERRED.map(str::to_string).to_vec();
        let kubelets = Kubelets::new(&Trust::InsecureSkipVerify, None, preferred, TIMEOUT).expect("TLS");
        // Stands in for a lookup: no test calls a resolver.
        kubelets.resolver.record("known", true);
        kubelets.resolver.record("unknown", false);
        let cases: [(&[(&str, &str)], &str); 3] = [
            (&[("InternalIP", "10.0.0.1"), ("Hostname", "known")], "known"),
            (&[("InternalIP", "10.0.0.1"), ("Hostname", "unknown")], "10.0.0.1"),
            (&[("Hostname", "unknown")], "unknown"),
        ];
        for (addresses, want) in cases {
            let address = |(kind, address): &(&str, &str)| api::tree! { "type" => *kind, "address" => *address };
            let addresses: Vec<Tree> = addresses.iter().map(address).collect();
            let node = api::tree! { "status" => api::tree! { "addresses" => addresses } };
            assert_eq!(kubelets.kubelet(&node).await.ok().map(|kubelet| kubelet.host).as_deref(), Some(want));
        }
    }

    #[tokio::test]
    async fn kubelet_has_the_preferred_address_of_its_node() {
        let preferred = vec!["InternalIP".to_string(), "Hostname".to_string()];
        let kubelets = Kubelets::new(&Trust::InsecureSkipVerify, None, preferred, TIMEOUT).expect("TLS");
        let found = async |node: &str| {
            let node = api::json::decode(node.as_bytes()).expect("JSON");
            let kubelet = kubelets.kubelet(&node).await.map_err(|status| status.message)?;
            Ok::<_, String>(format!("{} {} {}", kubelet.host, kubelet.port, kubelet.takes_websockets))
        };
        let cases = [
            (
                r#"{"status":{"addresses":[{"type":"Hostname","address":"a"},{"type":"InternalIP","address":"10.0.0.1"}],
                "daemonEndpoints":{"kubeletEndpoint":{"Port":7}},"declaredFeatures":["ExtendWebSocketsToKubelet"]}}"#,
                Ok("10.0.0.1 7 true"),
            ),
            (r#"{"status":{"addresses":[{"type":"Hostname","address":"a"}]}}"#, Ok("a 10250 false")),
            (
                r#"{"status":{"addresses":[{"type":"ExternalIP","address":"1.2.3.4"},{"type":"X","address":"y"}]}}"#,
                Err("no preferred addresses found; known addresses: [{ExternalIP 1.2.3.4} {X y}]"),
            ),
            ("{}", Err("no preferred addresses found; known addresses: []")),
        ];
        for (node, want) in cases {
            assert_eq!(found(node).await, want.map(str::to_string).map_err(str::to_string), "{node}");
        }
    }
}
