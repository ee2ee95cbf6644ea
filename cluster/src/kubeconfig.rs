//! The file with which kubectl finds the cluster and its user.

use api::{Tree, base64, list, tree};

use crate::pki::Pair;

/// A kubeconfig with one cluster, one user and one context.
pub fn write(server: &str, authority: &str, user: &str, client: &Pair) -> Vec<u8> {
    let cluster = tree! { "server" => server, "certificate-authority-data" => base64::encode(authority.as_bytes()) };
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
