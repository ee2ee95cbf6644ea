//! No container of a pod starts before its network policies are in force.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, list, tree};
use kubelet::network_gate::{GateError, GateFuture, NetworkGate};
use testkit::Cluster;
use tokio::sync::watch;

use super::pods::Agent;

const CORE: &str = "/api/v1/namespaces/default";
const DEADLINE: Duration = Duration::from_secs(60);

struct Gate {
    /// Whether a pod's network has been reported.
    reported: watch::Sender<bool>,
    /// Whether rules can be applied; None while they are being applied.
    applied: watch::Receiver<Option<bool>>,
}

impl NetworkGate for Gate {
    fn pod_network_ready<'a>(&'a self, _: &'a Tree, ips: Vec<IpAddr>) -> GateFuture<'a> {
        assert!(!ips.is_empty(), "the gate is told the addresses");
        let mut applied = self.applied.clone();
        self.reported.send_replace(true);
        Box::pin(async move {
            let decided = applied.wait_for(Option::is_some).await.map_err(|error| GateError(error.into()))?;
            if *decided == Some(true) { Ok(()) } else { Err(GateError("the kernel has no nftables".into())) }
        })
    }

    fn pod_network_removed(&self, _: &str) {}
}

fn pod(name: &str) -> Tree {
    let container = tree! { "name" => name, "image" => "i:1" };
    tree! {
        "metadata" => tree! { "name" => name },
        "spec" => tree! {
            "nodeName" => "n1", "automountServiceAccountToken" => false, "containers" => list![container],
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_start_after_the_network_policies() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let (gate, applied) = watch::channel(None);
    let (reported, mut is_reported) = watch::channel(false);
    let agent = Agent::start_with_gate(&cluster, "n1", Arc::new(Gate { reported, applied }), |_| {}).await;
    assert_eq!(client.post(&format!("{CORE}/pods"), &pod("web")).await.code, 201);
    // The network is there, and the rules are not.
    let waited = tokio::time::timeout(DEADLINE, is_reported.wait_for(|reported| *reported)).await;
    waited.expect("in time").expect("the gate is there");
    assert!(agent.runtime.running().is_empty(), "{:?}", agent.runtime.running());
    gate.send(Some(false)).expect("the kubelet waits");
    let failed = |_, events: &Tree| {
        let text = "Failed to create pod sandbox: the kernel has no nftables";
        events.list("items").iter().any(|event| event.str("message") == text)
    };
    client.until(&format!("{CORE}/events"), failed).await;
    assert!(agent.runtime.running().is_empty(), "{:?}", agent.runtime.running());
    gate.send(Some(true)).expect("the kubelet waits");
    client.until(&format!("{CORE}/pods/web"), |_, pod| pod.str("status.phase") == "Running").await;
    agent.stop().await;
}
