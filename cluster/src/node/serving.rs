//! The serving certificate of the kubelet's port, if the API server signs it (`serverTLSBootstrap`).

use std::net::IpAddr;
use std::sync::Arc;

use api::Tree;
use client::{Client, Random};
use kubelet::Config;
use server::tls::Serving;
use tokio::sync::watch;

use super::bootstrap::CertificateRotation;
use super::request::{CertificateRequest, SERVING_SIGNER};
use crate::pki;

const BASE: &str = "kubelet-server";

/// Keeps the serving certificate valid. Until one is signed, the port has a self-signed one. `node` is the node object
/// once it exists.
pub fn rotated(
    config: &Config,
    client: &Client,
    serving: Arc<Serving>,
    node: watch::Receiver<Option<Arc<Tree>>>,
) -> CertificateRotation {
    let (name, seen) = (config.node_name.clone(), node.clone());
    CertificateRotation {
        dir: config.certificates.dir.clone().unwrap_or_else(|| config.root_dir.join("pki")),
        base: BASE,
        client: client.clone(),
        random: Arc::new(Random::seeded(Random::fresh_seed())),
        wanted: Box::new(move || wanted(&name, seen.borrow().as_deref()?)),
        node: Some(node),
        take: Box::new(move |pair| Ok(serving.replace(pki::certificates(pair)?, pki::private_key(pair)?)?)),
    }
}

/// The request for all addresses of the node; None while it has none.
fn wanted(name: &str, node: &Tree) -> Option<CertificateRequest> {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for address in node.list("status.addresses").iter().map(|address| address.str("address")) {
        match address.parse::<IpAddr>() {
            Ok(address) => addresses.push(address),
            Err(_) => names.push(address.to_string()),
        }
    }
    names.sort();
    names.dedup();
    addresses.sort();
    addresses.dedup();
    (!addresses.is_empty()).then(|| CertificateRequest {
        signer: SERVING_SIGNER,
        node: name.to_string(),
        names,
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn certificate_covers_all_addresses_of_the_node() {
        assert_eq!(wanted("n", &tree! {}), None);
        let address = |kind: &str, address: &str| tree! { "type" => kind, "address" => address };
        let addresses = list![address("InternalIP", "10.0.0.1"), address("Hostname", "h"), address("InternalDNS", "h")];
        let found = wanted("n", &tree! { "status" => tree! { "addresses" => addresses } }).expect("addresses");
        assert_eq!((found.names, found.addresses), (vec!["h".to_string()], vec![IpAddr::from([10, 0, 0, 1])]));
    }
}
