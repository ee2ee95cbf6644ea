//! Parts of the kubelet against a real server, as the node that they run on.

#![allow(clippy::unwrap_used)]

mod clocks;
mod csi;
mod drain;
mod endings;
mod life;
mod network_gate;
mod pods;
mod pressure;
mod probes;
mod remembered;
mod restarts;
mod scene;
mod sources;
mod starts;
mod volumes;

use std::process::Command;
use std::sync::Arc;

use cluster::pki::Subject;
use testkit::{Cluster, client::tls};

/// A client that is a node.
pub fn node_client(cluster: &Cluster, name: &str) -> client::Client {
    let pki = cluster.pki();
    let ca = pki.read("ca").expect("a CA bundle").expect("a CA bundle");
    let subject = Subject {
        file: format!("node-{name}"),
        ca: "ca",
        common_name: format!("system:node:{name}"),
        organization: "system:nodes".to_string(),
        names: Vec::new(),
        addresses: Vec::new(),
    };
    let pair = pki.issue(&ca, &subject).expect("a certificate");
    let address = cluster.address();
    let https = client::https::Https::new("127.0.0.1", address.port(), None, Arc::new(tls(&ca, Some(&pair))))
        .expect("a client");
    client::Client::new(Arc::new(https), "test")
}

/// Whether this is the run that may mount: the test runs itself again in a private mount namespace, whose
/// mounts end with it.
pub fn is_apart(test: &str) -> bool {
    if std::env::var_os("MOUNTS_APART").is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("a path");
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]).arg(own).args(["--exact", test, "--nocapture"]);
    let output = again.env("MOUNTS_APART", "1").output().expect("unshare runs: these tests need root");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "it ran: {said}");
    false
}
