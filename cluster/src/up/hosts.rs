//! The further nodes of `up --nodes N`: simulated hosts of this machine, each of which joins as another machine would.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::hosts::{Host, HostLink, Router, Spec};
use api::{Tree, tree};
use client::{Client, Informers, Random, Resource, Selection};
use network::cidr::IpNet;
use stdx::clock::{Clock, SystemClock};
use stdx::sync::Mutex;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::logs::Level;
use crate::machine::files::{write_durable, write_private};
use crate::machine::network::ClusterNetwork;
use crate::node::join::fingerprints;
use crate::node::token;

const NODES: Resource = Resource::core("nodes");
const SECRETS: Resource = Resource::core("secrets");
/// The most nodes of a machine, with its own: the link has an address for each of them.
pub const MAX_NODES: u32 = 200;
/// Below the data directory.
const DIRECTORY: &str = "nodes";
const LINK_FILE: &str = "link.json";
/// How long nodes may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Prefixes of links, of which the first that no route has is used.
const LINK_CANDIDATES: std::ops::RangeInclusive<u8> = 0..=255;

/// The link of this machine and its simulated hosts.
#[derive(Clone)]
pub struct NodeLink {
    router: Router,
    prefix: String,
    cgroup: String,
}

/// The options of simulated hosts.
pub struct HostOptions {
    /// The number of nodes, with that of this machine.
    pub nodes: u32,
    /// The data directory of the cluster.
    pub data_dir: PathBuf,
    /// The name of this machine's node, from which the names of further nodes are derived.
    pub node_name: String,
    /// The URL of the API server.
    pub server: String,
    /// The CA certificates of the API server.
    pub ca: String,
    /// The KubeletConfiguration of all nodes.
    pub kubelet_config: Tree,
    /// Parts of the nodes that do not run.
    pub disable: Vec<String>,
    /// The log level of the nodes.
    pub log_level: Level,
}

impl HostOptions {
    /// The directory of a node.
    pub(super) fn directory(&self, number: u32) -> PathBuf {
        self.data_dir.join(DIRECTORY).join(name(&self.node_name, number))
    }
}

/// What nodes need to start: the token with which new ones join, and their configuration.
pub(super) struct StartFiles {
    token: PathBuf,
    config: PathBuf,
}

impl StartFiles {
    /// Removes the token.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.token);
    }
}

/// Creates a token for this start, and writes the configuration of all nodes.
pub(super) async fn prepare_start(client: &Client, options: &HostOptions) -> Result<StartFiles> {
    Ok(StartFiles { token: create_token(client, &options.data_dir).await?, config: write_configuration(options)? })
}

impl NodeLink {
    /// Creates the bridge of this machine and its hosts. Its range is chosen once and kept in the data directory.
    pub(crate) fn create(data_dir: &Path, network: &ClusterNetwork, cgroup_root: &str) -> Result<NodeLink> {
        let kept = NodeLink::read(data_dir)?;
        let prefix = network.names().bridge;
        let name = format!("{prefix}-nodes");
        let net = choose_range(kept.map(|kept| kept.router.net), &name, network)?;
        let link = NodeLink {
            router: Router { name, net, inside: network.pod_cidrs.clone() },
            prefix,
            cgroup: format!("{}/tiphys-hosts{}", cgroup_root.trim_end_matches('/'), network.index),
        };
        link.write(data_dir)?;
        link.router.ensure().map_err(failed)?;
        Ok(link)
    }

    fn write(&self, data_dir: &Path) -> Result<()> {
        let dir = data_dir.join(DIRECTORY);
        std::fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
        let object = tree! {
            "net" => self.router.net.to_string(), "prefix" => self.prefix.clone(), "cgroup" => self.cgroup.clone(),
        };
        write_durable(&dir.join(LINK_FILE), &String::from_utf8_lossy(&api::json::encode(&object, None)))
    }

    /// The link of a data directory; None if it never had one.
    pub(crate) fn read(data_dir: &Path) -> Result<Option<NodeLink>> {
        let path = data_dir.join(DIRECTORY).join(LINK_FILE);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(Error::file(&path))?,
        };
        let object: Tree = api::json::decode(&text).unwrap_or_default();
        let invalid = || Error::Flags(vec![format!("{}: is not the link of a cluster's nodes", path.display())]);
        let net = object.str("net").parse().map_err(|_| invalid())?;
        let (prefix, cgroup) = (object.str("prefix").to_string(), object.str("cgroup").to_string());
        if prefix.is_empty() || cgroup.is_empty() {
            return Err(invalid());
        }
        let router = Router { name: format!("{prefix}-nodes"), net, inside: Vec::new() };
        Ok(Some(NodeLink { router, prefix, cgroup }))
    }

    /// The address of this machine on the link.
    pub fn address(&self) -> IpAddr {
        self.router.net.address
    }

    /// The bridge of the link.
    pub(crate) fn device(&self) -> &str {
        &self.router.name
    }

    /// The bridge of this machine's pods, after which devices are named.
    pub(crate) fn bridge(&self) -> &str {
        &self.prefix
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    pub(super) fn host(&self, number: u32) -> Option<HostLink> {
        let IpAddr::V4(first) = self.router.net.address else { return None };
        let address = Ipv4Addr::from_bits(first.to_bits().checked_add(number - 1)?);
        let net = IpNet::new(address.into(), self.router.net.prefix())?;
        Some(HostLink { device: format!("{}-n{number}", self.prefix), net })
    }

    /// Stops the remaining hosts, and deletes the bridge; returns what could not be removed.
    pub(crate) fn remove(&self) -> Vec<String> {
        let hosts = ::hosts::remove_all(&self.cgroup).err().map(|error| error.to_string());
        let link = self.router.remove().err();
        let link = link.map(|error| format!("failed to remove the link of the nodes: {error}"));
        hosts.into_iter().chain(link).collect()
    }
}

pub(super) fn failed(error: ::hosts::Error) -> Error {
    Error::Node(stdx::error::chain(&error))
}

/// The kept range of the link, or a free one.
fn choose_range(kept: Option<IpNet>, bridge: &str, network: &ClusterNetwork) -> Result<IpNet> {
    let routes = crate::machine::network::routes().map_err(|error| Error::Node(error.to_string()))?;
    let is_free = |net: &IpNet| {
        let is_routed = routes.iter().any(|(to, device)| device != bridge && to.overlaps(net));
        !is_routed && !network.pod_cidrs.iter().chain(&network.service_cidrs).any(|range| range.overlaps(net))
    };
    let candidate = |third: u8| IpNet::new(IpAddr::from([172, 30, third, 1]), 24);
    let net = kept.into_iter().chain(LINK_CANDIDATES.filter_map(candidate)).find(is_free);
    net.ok_or_else(|| Error::Node("every range of 172.30.0.0/16 overlaps a route of this machine".to_string()))
}

/// The name of a node: that of the first with a number.
pub(super) fn name(first: &str, number: u32) -> String {
    format!("{first}-{number}")
}

/// Writes the KubeletConfiguration of all nodes.
fn write_configuration(options: &HostOptions) -> Result<PathBuf> {
    let mut config = options.kubelet_config.clone();
    config.set("apiVersion", "kubelet.config.k8s.io/v1beta1");
    config.set("kind", "KubeletConfiguration");
    let file = options.data_dir.join(DIRECTORY).join("kubelet.yaml");
    write_private(&file, &String::from_utf8_lossy(&api::yaml::encode(&config)))?;
    Ok(file)
}

/// Creates a token for this start, in a file: arguments of processes can be read by all users.
async fn create_token(client: &Client, data_dir: &Path) -> Result<PathBuf> {
    let (token, secret) = token::for_simulated_hosts(SystemClock.now())?;
    client.create(SECRETS, "kube-system", &secret).await.map_err(|error| Error::Bootstrap(error.to_string()))?;
    let file = data_dir.join(DIRECTORY).join("token");
    write_private(&file, &token)?;
    Ok(file)
}

pub(super) fn spec(options: &HostOptions, link: &NodeLink, number: u32, files: &StartFiles) -> Result<Spec> {
    let StartFiles { token, config } = files;
    let name = name(&options.node_name, number);
    let too_many = || Error::Flags(vec![format!("--nodes: at most {MAX_NODES} nodes are supported")]);
    let host = link.host(number).ok_or_else(too_many)?;
    let dir = options.directory(number);
    let data_dir = dir.join("agent");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut program: Vec<String> =
        ["agent", "--stop-pods", "--server", &options.server, "--node-name", &name].map(Into::into).into();
    program.extend(["--data-dir".to_string(), text(&data_dir), "--node-ip".to_string(), host.net.address.to_string()]);
    program.extend(["--log-level".to_string(), options.log_level.name().to_string()]);
    if !data_dir.join("kubelet.conf").exists() {
        let hash = fingerprints(&options.ca).unwrap_or_default().into_iter().next().unwrap_or_default();
        program.extend(["--token-file".to_string(), text(token)]);
        program.extend(["--discovery-token-ca-cert-hash".to_string(), hash]);
    }
    program.extend(["--kubelet-config".to_string(), text(config)]);
    program.extend(options.disable.iter().flat_map(|part| ["--disable".to_string(), part.clone()]));
    Ok(Spec { cgroup: format!("{}/{name}", link.cgroup), name, dir, link: host, program })
}

/// Waits until the nodes of the hosts are ready. `since` is the time at which they were started: an older status is that
/// of an earlier start.
pub(super) async fn wait_until_ready(
    client: &Client,
    options: &HostOptions,
    numbers: &[u32],
    hosts: &mut [&mut Host],
    since: i64,
) -> Result<()> {
    let waiting: BTreeSet<String> = numbers.iter().map(|number| name(&options.node_name, *number)).collect();
    tokio::select! {
        ready = watch_until_ready(client, options, waiting, since) => ready,
        name = first_ended(hosts) => Err(not_ready(options, &[name])),
    }
}

async fn watch_until_ready(
    client: &Client,
    options: &HostOptions,
    waiting: BTreeSet<String>,
    since: i64,
) -> Result<()> {
    let waiting = Arc::new(Mutex::new(waiting));
    let changed = Arc::new(Notify::new());
    let informers = Informers::new(client.clone(), Arc::new(Random::seeded(Random::fresh_seed())));
    let informer = informers.informer(Selection::all(NODES));
    let (left, notify) = (waiting.clone(), changed.clone());
    informer.on_change(move |change| {
        let Some(node) = change.new.as_deref().filter(|node| is_ready(node, since)) else { return };
        if left.lock().remove(node.str("metadata.name")) {
            notify.notify_one();
        }
    });
    informers.start();
    let all_ready = async {
        while !waiting.lock().is_empty() {
            changed.notified().await;
        }
    };
    let ready = tokio::time::timeout(READY_TIMEOUT, all_ready).await;
    informers.stop();
    if ready.is_ok() {
        return Ok(());
    }
    let names: Vec<String> = waiting.lock().iter().cloned().collect();
    Err(not_ready(options, &names))
}

/// Waits until one of the hosts exits without a stop; returns its name.
async fn first_ended(hosts: &mut [&mut Host]) -> String {
    async fn wait(host: &mut Host) -> String {
        host.ended().await;
        host.name().to_string()
    }
    let mut waits: Vec<_> = hosts.iter_mut().map(|host| Box::pin(wait(host))).collect();
    if waits.is_empty() {
        std::future::pending::<()>().await;
    }
    std::future::poll_fn(|context| {
        let ended = waits.iter_mut().find_map(|wait| match wait.as_mut().poll(context) {
            Poll::Ready(name) => Some(name),
            Poll::Pending => None,
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Which nodes are not ready, and the end of their logs.
fn not_ready(options: &HostOptions, names: &[String]) -> Error {
    let describe = |name: &String| {
        let log = options.data_dir.join(DIRECTORY).join(name).join("log");
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        format!(
            "{name} is not ready (its log {} ends with: {})",
            log.display(),
            text.lines().last().unwrap_or_default()
        )
    };
    Error::Node(names.iter().map(describe).collect::<Vec<_>>().join("; "))
}

fn is_ready(node: &Tree, since: i64) -> bool {
    let conditions = node.list("status.conditions").iter();
    let mut ready = conditions.filter(|condition| condition.str("type") == "Ready");
    let is_new = |condition: &Tree| {
        api::time::parse(condition.str("lastHeartbeatTime")).is_ok_and(|heartbeat| heartbeat.seconds >= since)
    };
    ready.any(|condition| condition.str("status") == "True" && is_new(condition))
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    #[test]
    fn an_old_status_does_not_make_a_node_ready() {
        let node = |status: &str, heartbeat: &str| {
            let ready = tree! { "type" => "Ready", "status" => status, "lastHeartbeatTime" => heartbeat };
            tree! { "status" => tree! { "conditions" => list![ready] } }
        };
        assert!(is_ready(&node("True", "1970-01-01T00:01:00Z"), 60));
        assert!(!is_ready(&node("True", "1970-01-01T00:00:59Z"), 60));
        assert!(!is_ready(&node("False", "1970-01-01T00:01:00Z"), 60));
    }
}
