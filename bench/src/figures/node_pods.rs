//! Pods of chosen nodes, and their network namespaces, in which a benchmark sends and receives like their processes: the
//! bridge, the veth pair, the filter of forged addresses and a network policy are on the path.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::{Tree, list, tree};
use client::{Client, Resource};
use network::netlink::Rtnl;
use network::ns::Netns;

use crate::Result;

const PODS: Resource = Resource::core("pods");
const POLICIES: Resource = Resource::new("networking.k8s.io", "v1", "networkpolicies");
const NAMESPACE: &str = "default";
/// Every node has the image of the binary itself.
const IMAGE: &str = "tiphys.local/hello";
const LABEL: &str = "traffic";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A running pod.
pub(super) struct NodePod {
    pub(super) netns: Netns,
    pub(super) address: IpAddr,
}

/// Runs a pod on each of these nodes. A policy lets them reach each other, and no other pod.
pub(super) async fn create(client: &Client, nodes: &[&str]) -> Result<Vec<NodePod>> {
    client.create(POLICIES, NAMESPACE, &policy()).await?;
    for node in nodes {
        create_pod(client, node).await?;
    }
    let mut pods = Vec::new();
    for node in nodes {
        let address = wait_for_address(client, &pod_name(node)).await?;
        pods.push(NodePod { netns: find_namespace(address)?, address });
    }
    Ok(pods)
}

fn pod_name(node: &str) -> String {
    format!("{LABEL}-{node}")
}

fn policy() -> Tree {
    let pods = || tree! { "matchLabels" => tree! { "app" => LABEL } };
    let from = list![tree! { "podSelector" => pods() }];
    tree! {
        "apiVersion" => "networking.k8s.io/v1",
        "kind" => "NetworkPolicy",
        "metadata" => tree! { "name" => LABEL },
        "spec" => tree! { "podSelector" => pods(), "ingress" => list![tree! { "from" => from }] },
    }
}

/// Repeated while the namespace has no service account yet.
async fn create_pod(client: &Client, node: &str) -> Result<()> {
    let container = tree! { "name" => "main", "image" => IMAGE, "imagePullPolicy" => "IfNotPresent" };
    let pod = tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "metadata" => tree! { "name" => pod_name(node), "labels" => tree! { "app" => LABEL } },
        "spec" => tree! { "nodeName" => node, "containers" => list![container] },
    };
    let started = Instant::now();
    loop {
        match client.create(PODS, NAMESPACE, &pod).await {
            Err(error) if error.is_forbidden() && started.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            created => return Ok(created.map(drop)?),
        }
    }
}

async fn wait_for_address(client: &Client, name: &str) -> Result<IpAddr> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let pod = client.get(PODS, NAMESPACE, name).await?;
        if pod.str("status.phase") == "Running" {
            return Ok(pod.str("status.podIP").parse()?);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("the pod {name} does not run").into())
}

/// The network namespace of this machine's processes in which a device has the address.
fn find_namespace(address: IpAddr) -> Result<Netns> {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let path: PathBuf = entry.path().join("ns/net");
        // A process may have ended meanwhile.
        let Ok(id) = fs::read_link(&path) else { continue };
        if seen.insert(id)
            && let Ok(netns) = Netns::open(&path)
            && has_address(&netns, address)?
        {
            return Ok(netns);
        }
    }
    Err(format!("no network namespace of this machine has the address {address}").into())
}

fn has_address(netns: &Netns, address: IpAddr) -> Result<bool> {
    let mut rtnl = Rtnl::open_in(netns)?;
    for link in rtnl.links()? {
        if rtnl.addresses(link.index)?.iter().any(|known| known.net.address == address) {
            return Ok(true);
        }
    }
    Ok(false)
}
