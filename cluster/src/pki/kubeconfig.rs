//! The file with which kubectl finds the cluster and its user.

use std::net::SocketAddr;
use std::path::Path;

use api::{Tree, base64, list, tree};

use super::CertificateAndKey;
use crate::error::{Error, Result};
use crate::machine::address::reachable;
use crate::machine::files::write_private;

/// A kubeconfig with one cluster, one user and one context.
pub fn write(server: &str, ca: &str, user: &str, client: &CertificateAndKey) -> Vec<u8> {
    let cluster = tree! { "server" => server, "certificate-authority-data" => base64::encode(ca.as_bytes()) };
    let credentials = tree! {
        "client-certificate-data" => base64::encode(client.certificate.as_bytes()),
        "client-key-data" => base64::encode(client.key.as_bytes()),
    };
    let config: Tree = tree! {
        "apiVersion" => "v1",
        "kind" => "Config",
        "current-context" => "tiphys",
        "clusters" => list![tree! { "name" => "tiphys", "cluster" => cluster }],
        "users" => list![tree! { "name" => user, "user" => credentials }],
        "contexts" => list![tree! { "name" => "tiphys", "context" => tree! { "cluster" => "tiphys", "user" => user } }],
    };
    api::yaml::encode(&config)
}

/// The kubeconfig of the administrator, for clients of this machine.
pub(crate) fn write_kubeconfig(
    path: &Path,
    address: SocketAddr,
    ca: &CertificateAndKey,
    admin: &CertificateAndKey,
) -> Result<()> {
    let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let text = write(&url, &ca.certificate, "kubernetes-admin", admin);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    write_private(path, &String::from_utf8_lossy(&text))
}
