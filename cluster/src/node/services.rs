//! The cluster DNS, the service proxy and the network policies of a node, which run in the process of its kubelet.
//!
//! Every node serves the address of the `kube-dns` Service itself: it is an address of the node's loopback device, and
//! the label [`PROXY_NAME`] keeps service proxies from forwarding it. Queries of pods stay on their node, without
//! connection tracking.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::dns::{Cluster, Config as DnsConfig, CorefileSource, HttpEndpoints, Limits, Listen};
use ::proxy::config::{Configuration, LocalMode, Mode};
use ::proxy::runner;
use api::{Tree, list, tree};
use client::{Client, Metrics, Resource};
use kubelet::Config;
use kubelet::network_gate::{GateError, GateFuture, NetworkGate};
use network::cni::builtin::Names;
use stdx::clock::SystemClock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::container_runtime::RuntimeChoice;
use super::pod_network::{self, PodNetwork};
use crate::error::{Error, Result};
use crate::machine::address;
use crate::machine::loopback::LoopbackAddress;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";
/// The ConfigMap of the Corefile, with the name that kubeadm and charts of CoreDNS use.
const CONFIG_MAP: &str = "coredns";
const SERVICES: Resource = Resource::core("services");
/// Upstream's label for services that another proxy than the usual one forwards.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const NODE_DNS: &str = "tiphys-node-dns";
const PORT: u16 = 53;
/// How long pods wait for the first sync of the service proxy, from the start of the node.
const FIRST_SYNC_TIMEOUT: Duration = Duration::from_secs(10);
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What a node runs besides its kubelet. A user can turn each of them off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Component {
    /// The cluster DNS
    Dns,
    /// The service proxy
    KubeProxy,
    /// The enforcement of network policies
    NetworkPolicy,
    /// The routes to the pods of other nodes
    Network,
}

/// A value of `--proxy-mode` that is not a mode.
#[derive(Debug, thiserror::Error)]
#[error("must be nftables, iptables or userspace")]
pub struct UnknownProxyMode;

/// Reads `--proxy-mode`.
pub fn parse_proxy_mode(text: &str) -> std::result::Result<Mode, UnknownProxyMode> {
    Mode::parse(text).ok_or(UnknownProxyMode)
}

/// The DNS of a node's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dns {
    /// The node serves none; a KubeletConfiguration may name one.
    Disabled,
    /// The node serves this address.
    At(IpAddr),
    /// Pods use this address, at which a DNS is to be deployed.
    Deployed(IpAddr),
    /// The node serves the address of the cluster's `kube-dns` Service, if that is served by nodes. Otherwise its pods
    /// use the address as it is.
    OfCluster,
}

/// How a node serves its pods.
pub struct Options {
    pub dns: Dns,
    /// None without a proxy.
    pub proxy: Option<Configuration>,
    /// The nftables table of network policies; None if they are not enforced.
    pub policy_table: Option<String>,
    /// The network between this node's pods and those of other nodes.
    pub pod_network: PodNetwork,
}

impl Options {
    /// No services: for a kubelet whose administrator runs them separately.
    pub fn none() -> Options {
        Options { dns: Dns::Disabled, proxy: None, policy_table: None, pod_network: PodNetwork::Disabled }
    }
}

/// The names of the proxy's tables: one for each cluster of a machine.
pub fn proxy_table(names: &Names) -> String {
    match names.table.strip_prefix(&Names::default().table) {
        Some(suffix) => format!("{}{suffix}", Configuration::default().table),
        None => Configuration::default().table,
    }
}

/// The name of the table of network policies: one for each cluster of a machine.
pub fn policy_table(names: &Names) -> String {
    let suffix = names.table.strip_prefix(&Names::default().table).unwrap_or_default();
    format!("tiphys-policy{suffix}")
}

/// The proxy of a node whose pods are on the built-in network, or on another one if there is none.
pub fn proxy_configuration(node: &str, names: &Names, is_builtin_network: bool) -> Configuration {
    let local_mode = match is_builtin_network {
        true => LocalMode::BridgeInterface(names.bridge.clone()),
        false => LocalMode::NodeCidr,
    };
    Configuration { node_name: node.to_string(), table: proxy_table(names), local_mode, ..Configuration::default() }
}

/// The address of the `kube-dns` Service of a cluster.
pub fn cluster_dns_address(service_cidrs: &[::network::cidr::IpNet]) -> Option<IpAddr> {
    service_cidrs.first().and_then(|range| dns_address(range.network().address, range.prefix()))
}

/// The address of the `kube-dns` Service in a range of services: the tenth, as kubeadm has it.
pub fn dns_address(network: IpAddr, prefix: u8) -> Option<IpAddr> {
    const TENTH: u8 = 10;
    match network {
        IpAddr::V4(v4) if prefix <= 28 => Some(IpAddr::from(v4.to_bits().checked_add(TENTH.into())?.to_be_bytes())),
        IpAddr::V6(v6) if prefix <= 124 => Some(IpAddr::from(v6.to_bits().checked_add(TENTH.into())?.to_be_bytes())),
        _ => None,
    }
}

/// The Service at whose address every node serves DNS.
pub fn dns_service(address: IpAddr) -> Tree {
    let port = |name: &str, protocol: &str, port: u16| {
        let port = i64::from(port);
        tree! { "name" => name, "protocol" => protocol, "port" => port, "targetPort" => port }
    };
    tree! {
        "apiVersion" => "v1",
        "kind" => "Service",
        "metadata" => tree! {
            "name" => SERVICE,
            "namespace" => NAMESPACE,
            "labels" => tree! {
                "k8s-app" => SERVICE,
                "kubernetes.io/cluster-service" => "true",
                "kubernetes.io/name" => "CoreDNS",
                PROXY_NAME => NODE_DNS,
            },
        },
        "spec" => tree! {
            "clusterIP" => address.to_string(),
            "ports" => list![port("dns", "UDP", PORT), port("dns-tcp", "TCP", PORT), port("metrics", "TCP", 9153)],
        },
    }
}

/// The ConfigMap that users edit to configure the DNS.
pub fn dns_config_map(cluster_domain: &str) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "ConfigMap",
        "metadata" => tree! { "name" => CONFIG_MAP, "namespace" => NAMESPACE },
        "data" => tree! { "Corefile" => ::dns::default_corefile(cluster_domain) },
    }
}

/// Deletes the Service of a DNS that nodes serve, so that another one can have its name and address.
pub async fn delete_dns_service(client: &Client) -> client::Result<()> {
    match client.get(SERVICES, NAMESPACE, SERVICE).await {
        Ok(service) if is_served_by_nodes(&service) => {
            let deleted = client.delete(SERVICES, NAMESPACE, SERVICE, client::DeleteOptions::of(&service)).await;
            deleted.map(drop)
        }
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_served_by_nodes(service: &Tree) -> bool {
    service.map("metadata.labels").str(PROXY_NAME) == NODE_DNS
}

/// The DNS and the proxy of a node while they run.
pub struct NodeServices {
    dns: Option<(::dns::DnsHandle, LoopbackAddress)>,
    proxy: Option<runner::ProxyHandle>,
    policies: Option<networkpolicy::NetworkPolicyHandle>,
    overlay: Option<::overlay::Handle>,
    /// The ranges of the cluster's pods, if there are routes to other nodes.
    pub pod_ranges: Vec<::network::cidr::IpNet>,
    /// The address that this node serves.
    pub dns_address: Option<IpAddr>,
}

/// Starts the configured services. The address of the DNS is set for the node's pods, unless they have another.
pub async fn start(
    client: &Client,
    options: Options,
    runtime: &mut RuntimeChoice,
    config: &mut Config,
) -> Result<NodeServices> {
    let proxy = match options.proxy {
        Some(configuration) => Some(start_proxy(client, configuration).await?),
        None => None,
    };
    let policies = match options.policy_table {
        Some(table) => Some(start_policies(client, table, &config.node_name).await?),
        None => None,
    };
    let (for_pods, served) = find_dns(client, options.dns).await?;
    if config.cluster_dns.is_empty() {
        config.cluster_dns.extend(for_pods);
    }
    if config.cluster_domain.is_empty() && for_pods.is_some() {
        config.cluster_domain = "cluster.local".to_string();
    }
    let dns = match served {
        Some(address) => Some(start_dns(client, address, config).await?),
        None => None,
    };
    let network = pod_network::find(client, options.pod_network).await?;
    let pod_ranges = network.as_ref().map(|network| network.pod_cidrs.clone()).unwrap_or_default();
    let overlay = match network {
        Some(network) => start_overlay(client, network, runtime, config)?,
        None => None,
    };
    Ok(NodeServices { dns, proxy, policies, overlay, pod_ranges, dns_address: served })
}

/// None if pods are on another network than the built-in one.
fn start_overlay(
    client: &Client,
    network: ::overlay::Config,
    runtime: &mut RuntimeChoice,
    config: &Config,
) -> Result<Option<::overlay::Handle>> {
    if !runtime.uses_builtin_network() {
        return Ok(None);
    }
    let RuntimeChoice::Builtin(builtin) = runtime else { return Ok(None) };
    let host = config.node_ips.first().copied().unwrap_or_else(|| address::advertised(UNSPECIFIED));
    builtin.cluster = pod_network::cluster_pods(&network, host);
    pod_network::start(client, network, &config.node_name, &builtin.names.bridge).map(Some)
}

/// The DNS of the pods, and the address that this node serves.
async fn find_dns(client: &Client, dns: Dns) -> Result<(Option<IpAddr>, Option<IpAddr>)> {
    match dns {
        Dns::Disabled => Ok((None, None)),
        Dns::Deployed(address) => Ok((Some(address), None)),
        Dns::At(address) => Ok((Some(address), Some(address))),
        Dns::OfCluster => match client.get(SERVICES, NAMESPACE, SERVICE).await {
            Ok(service) => {
                let address = service.str("spec.clusterIP").parse().ok();
                Ok((address, address.filter(|_| is_served_by_nodes(&service))))
            }
            Err(error) if error.is_not_found() => Ok((None, None)),
            Err(error) => Err(Error::Node(format!("failed to read the Service {NAMESPACE}/{SERVICE}: {error}"))),
        },
    }
}

async fn start_proxy(client: &Client, configuration: Configuration) -> Result<runner::ProxyHandle> {
    let environment = runner::Environment {
        client: client.clone(),
        node_client: None,
        configuration,
        metrics: Metrics::default(),
        clock: Arc::new(SystemClock),
    };
    let hint = "`--disable kube-proxy` runs this node without a service proxy";
    let failed = |error: runner::StartError| Error::Node(format!("{}; {hint}", stdx::error::chain(&error)));
    runner::start(environment).await.map_err(failed)
}

async fn start_policies(client: &Client, table: String, node: &str) -> Result<networkpolicy::NetworkPolicyHandle> {
    let environment = networkpolicy::Environment {
        client: client.clone(),
        table,
        node_name: node.to_string(),
        cleanup_on_stop: false,
        metrics: Metrics::default(),
        clock: Arc::new(SystemClock),
    };
    let hint = "`--disable network-policy` runs this node without network policies";
    let failed = |error: networkpolicy::kernel::Error| Error::Node(format!("{}; {hint}", stdx::error::chain(&error)));
    networkpolicy::start(environment).await.map_err(failed)
}

/// Lets the containers of a pod start when Services can be reached and the pod's network policies are in force.
struct ServicesGate {
    /// Without them, no policy applies.
    policies: Option<networkpolicy::PodReporter>,
    proxy: Option<FirstSync>,
}

impl NetworkGate for ServicesGate {
    fn pod_network_ready<'a>(&'a self, pod: &'a Tree, ips: Vec<IpAddr>) -> GateFuture<'a> {
        Box::pin(async move {
            if let Some(proxy) = &self.proxy {
                proxy.wait().await;
            }
            let Some(policies) = &self.policies else { return Ok(()) };
            let ready = policies.pod_network_ready(networkpolicy::PodInfo::read(pod, ips));
            ready.await.map_err(|error| GateError(error.into()))
        })
    }

    fn pod_network_removed(&self, uid: &str) {
        if let Some(policies) = &self.policies {
            policies.pod_network_removed(uid);
        }
    }
}

/// The first sync of the service proxy. Packets to Services that are sent before it have no rule and leave the node.
struct FirstSync {
    synced: watch::Receiver<bool>,
    /// Pods do not wait longer: a node keeps starting pods while its proxy fails, as upstream's does.
    deadline: Instant,
    is_reported: AtomicBool,
}

impl FirstSync {
    fn of(proxy: &runner::ProxyHandle) -> FirstSync {
        FirstSync {
            synced: proxy.synced_receiver(),
            deadline: Instant::now() + FIRST_SYNC_TIMEOUT,
            is_reported: AtomicBool::new(false),
        }
    }

    async fn wait(&self) {
        let mut synced = self.synced.clone();
        // A proxy that has ended is reported elsewhere.
        let waited = tokio::time::timeout_at(self.deadline, synced.wait_for(|synced| *synced)).await;
        if waited.is_err() && !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!("the service proxy has not synced yet, starting pods without it");
        }
    }
}

async fn start_dns(client: &Client, address: IpAddr, config: &Config) -> Result<(::dns::DnsHandle, LoopbackAddress)> {
    let hint = "`--disable dns` runs this node without a DNS server";
    let failed = |why: String| Error::Node(format!("failed to serve DNS at {address}: {why}; {hint}"));
    let held = LoopbackAddress::add(address).map_err(|error| failed(error.to_string()))?;
    let cluster = Cluster { client: client.clone() };
    let server = ::dns::Server::start(dns_config(address, config), Some(cluster)).await;
    Ok((server.map_err(|error| failed(stdx::error::chain(&error)))?, held))
}

fn dns_config(address: IpAddr, config: &Config) -> DnsConfig {
    let resolv_conf = Some(config.resolv_conf.clone()).filter(|path| !path.as_os_str().is_empty());
    DnsConfig {
        corefile: CorefileSource::ConfigMap {
            namespace: NAMESPACE.to_string(),
            name: CONFIG_MAP.to_string(),
            otherwise: ::dns::default_corefile(&config.cluster_domain),
        },
        default_port: PORT,
        listen: Listen::At(vec![SocketAddr::new(address, PORT)]),
        http: HttpEndpoints::At(address),
        node_name: Some(config.node_name.clone()),
        resolv_conf: resolv_conf.unwrap_or_else(|| PathBuf::from("/etc/resolv.conf")),
        limits: Limits::default(),
        clock: Arc::new(SystemClock),
    }
}

impl NodeServices {
    /// The gate that the kubelet waits for before it starts the containers of a pod.
    pub fn network_gate(&self) -> Arc<dyn NetworkGate> {
        Arc::new(ServicesGate {
            policies: self.policies.as_ref().map(networkpolicy::NetworkPolicyHandle::pod_reporter),
            proxy: self.proxy.as_ref().map(FirstSync::of),
        })
    }

    /// Stops all services. The rules stay, and no connection of a running pod is interrupted.
    pub async fn stop(self) {
        if let Some((dns, address)) = self.dns {
            dns.stop().await;
            drop(address);
        }
        if let Some(proxy) = self.proxy {
            proxy.stop().await;
        }
        if let Some(policies) = self.policies {
            policies.stop().await;
        }
        if let Some(overlay) = self.overlay {
            overlay.stop().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_has_the_tenth_address() {
        let check = |network: &str, prefix: u8, expected: Option<&str>| {
            let address = dns_address(network.parse().expect("an address"), prefix);
            assert_eq!(address.map(|address| address.to_string()).as_deref(), expected, "{network}/{prefix}");
        };
        check("10.96.0.0", 16, Some("10.96.0.10"));
        check("10.96.0.0", 28, Some("10.96.0.10"));
        check("10.96.0.0", 29, None);
        check("fd00:96::", 108, Some("fd00:96::a"));
    }

    #[tokio::test(start_paused = true)]
    async fn pods_wait_for_the_first_sync_for_a_limited_time() {
        let wait = async |sync_after: Option<Duration>| {
            let (sender, synced) = watch::channel(false);
            let started = Instant::now();
            let deadline = started + FIRST_SYNC_TIMEOUT;
            let gate = ServicesGate {
                policies: None,
                proxy: Some(FirstSync { synced, deadline, is_reported: AtomicBool::new(false) }),
            };
            let sync = async {
                tokio::time::sleep(sync_after.unwrap_or(FIRST_SYNC_TIMEOUT * 2)).await;
                sender.send_replace(true);
            };
            let pod = Tree::default();
            let ready = async {
                gate.pod_network_ready(&pod, Vec::new()).await.expect("no policies");
                let waited = started.elapsed();
                gate.pod_network_ready(&pod, Vec::new()).await.expect("no policies");
                (waited, started.elapsed())
            };
            tokio::join!(sync, ready).1
        };
        let at = |seconds| (Duration::from_secs(seconds), Duration::from_secs(seconds));
        assert_eq!(wait(Some(Duration::from_secs(3))).await, at(3));
        assert_eq!(wait(None).await, at(10), "the second pod does not wait again");
    }

    #[test]
    fn clusters_have_their_own_tables() {
        let names = |table: &str| Names { table: table.to_string(), ..Names::default() };
        assert_eq!(proxy_table(&Names::default()), "tiphys-proxy");
        assert_eq!(proxy_table(&names("tiphys-cni3")), "tiphys-proxy3");
    }
}
