//! The further nodes of `up --nodes N`: simulated hosts of this machine, each of which joins as another machine would.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::hosts::{Host, HostLink, Program, Router, Spec};
use api::{Tree, tree};
use client::{Client, Informers, Random, Resource, Selection};
use network::cidr::IpNet;
use stdx::clock::{Clock, SystemClock};
use stdx::sync::Mutex;
use tokio::sync::Notify;

use super::host_id::HostId;
pub use super::host_id::MAX_NODES;
use super::servers::ServerOptions;
use crate::error::{Error, Result};
use crate::logs::Level;
use crate::machine::files::{write_durable, write_private};
use crate::machine::network::ClusterNetwork;
use crate::node::join::fingerprints;
use crate::node::join_server::SealedCertificates;
use crate::node::token;

const NODES: Resource = Resource::core("nodes");
const SECRETS: Resource = Resource::core("secrets");
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
    /// How many of the hosts are servers: 0 if this machine is the server.
    servers: u32,
}

/// The options of simulated hosts.
pub struct HostOptions {
    /// The number of nodes, with that of this machine.
    pub nodes: u32,
    /// The data directory of the cluster.
    pub data_dir: PathBuf,
    /// The name of this machine's node, from which the names of further nodes are derived.
    pub node_name: String,
    /// The URL of the API server, unless hosts are servers.
    pub server: String,
    /// The CA certificates of the API server.
    pub ca: String,
    /// The servers among the hosts; None if this machine is the server.
    pub servers: Option<ServerOptions>,
    /// The KubeletConfiguration of all nodes.
    pub kubelet_config: Tree,
    /// Parts of the nodes that do not run.
    pub disable: Vec<String>,
    /// The log level of the nodes.
    pub log_level: Level,
}

impl HostOptions {
    /// The directory of a host.
    pub(super) fn directory(&self, id: HostId) -> PathBuf {
        directory(&self.data_dir).join(id.name(&self.node_name))
    }

    /// How many of the hosts are servers.
    pub(super) fn server_count(&self) -> u32 {
        self.servers.as_ref().map_or(0, |servers| servers.count)
    }
}

/// The directory of all hosts of a cluster.
pub(super) fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join(DIRECTORY)
}

/// What nodes need to start: the token with which new ones join, and their configuration.
pub(super) struct StartFiles {
    pub(super) token: PathBuf,
    /// The key of the certificates that a new server reads with the token.
    pub(super) certificate_key: PathBuf,
    pub(super) config: PathBuf,
    /// The URL of the API server with which they join.
    pub(super) server: String,
}

impl StartFiles {
    fn new(options: &HostOptions, server: String) -> Result<StartFiles> {
        let file = |name: &str| directory(&options.data_dir).join(name);
        let config = write_configuration(options)?;
        Ok(StartFiles { token: file("token"), certificate_key: file("certificate-key"), config, server })
    }

    /// Removes the secrets.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.token);
        let _ = std::fs::remove_file(&self.certificate_key);
    }
}

/// Writes the configuration of all nodes, and creates a token if a host has not joined yet. New servers get certificates
/// with it.
pub(super) async fn prepare_start(
    client: &Client,
    options: &HostOptions,
    ids: &[HostId],
    server: String,
) -> Result<StartFiles> {
    let files = StartFiles::new(options, server)?;
    let is_new = |id: &&HostId| !has_joined(options, **id);
    let new: Vec<&HostId> = ids.iter().filter(is_new).collect();
    let certificates = match new.iter().any(|id| matches!(id, HostId::Server(_))) {
        true => Some(SealedCertificates::read(&super::servers::data_dir(options, HostId::Server(1)))?),
        false => None,
    };
    if !new.is_empty() {
        create_token(client, &files, certificates).await?;
    }
    Ok(files)
}

/// Whether a host needs no token to start. The first server creates what the others get with theirs.
fn has_joined(options: &HostOptions, id: HostId) -> bool {
    match id {
        HostId::Member(_) | HostId::Server(1) => true,
        HostId::Server(_) => super::servers::has_joined(options, id),
        HostId::Node(_) => agent_dir(options, id).join("kubelet.conf").exists(),
    }
}

fn agent_dir(options: &HostOptions, id: HostId) -> PathBuf {
    options.directory(id).join("agent")
}

impl NodeLink {
    /// Creates the bridge of this machine and its hosts. Its range is chosen once and kept in the data directory.
    pub(crate) fn create(
        data_dir: &Path,
        network: &ClusterNetwork,
        cgroup_root: &str,
        servers: u32,
    ) -> Result<NodeLink> {
        let kept = NodeLink::read(data_dir)?;
        let prefix = network.names().bridge;
        // Hosts of a killed `up` may still be stopping. This process has claimed their names.
        let mut own = kept.iter().filter(|kept| kept.prefix == prefix);
        own.try_for_each(|kept| ::hosts::remove_all(&kept.cgroup)).map_err(failed)?;
        let name = format!("{prefix}-nodes");
        let net = choose_range(kept.map(|kept| kept.router.net), &name, network)?;
        let link = NodeLink {
            router: Router { name, net, net6: ipv6_of(net, network), inside: network.pod_cidrs.clone() },
            prefix,
            cgroup: format!("{}/tiphys-hosts{}", cgroup_root.trim_end_matches('/'), network.index),
            servers,
        };
        link.write(data_dir)?;
        link.router.ensure().map_err(failed)?;
        Ok(link)
    }

    fn write(&self, data_dir: &Path) -> Result<()> {
        let dir = data_dir.join(DIRECTORY);
        std::fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
        let mut object = tree! {
            "net" => self.router.net.to_string(), "prefix" => self.prefix.clone(), "cgroup" => self.cgroup.clone(),
            "servers" => i64::from(self.servers),
        };
        if let Some(net6) = self.router.net6 {
            object.set("net6", net6.to_string());
        }
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
        let net6 = object.str("net6").parse().ok();
        let router = Router { name: format!("{prefix}-nodes"), net, net6, inside: Vec::new() };
        let servers = object.int("servers").and_then(|servers| u32::try_from(servers).ok()).unwrap_or(0);
        Ok(Some(NodeLink { router, prefix, cgroup, servers }))
    }

    /// How many of the hosts are servers: 0 if this machine is the server.
    pub(crate) fn servers(&self) -> u32 {
        self.servers
    }

    /// The address of this machine on the link.
    pub fn address(&self) -> IpAddr {
        self.router.net.address
    }

    /// The same of all families.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        std::iter::once(self.router.net).chain(self.router.net6).map(|net| net.address).collect()
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

    /// The device and the address of a host.
    pub(super) fn host(&self, id: HostId) -> Option<HostLink> {
        id.on_link((self.router.net, self.router.net6), &self.prefix)
    }

    /// Stops the remaining hosts, and deletes the bridge; returns what could not be removed.
    pub(crate) fn remove(&self) -> Vec<String> {
        let hosts = ::hosts::remove_all(&self.cgroup).err().map(|error| error.to_string());
        remove_empty_parent(&self.cgroup);
        let link = self.router.remove().err();
        let link = link.map(|error| format!("failed to remove the link of the nodes: {error}"));
        hosts.into_iter().chain(link).collect()
    }
}

/// Removes the cgroup of `--cgroup-root` unless it is in use: by pods of this machine's node, or by other programs.
fn remove_empty_parent(cgroup: &str) {
    let parent = cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
    let Ok(hierarchies) = cgroup::Hierarchies::detect() else { return };
    if !parent.is_empty() {
        hierarchies.roots(parent).iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
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

/// The range of IPv6 that belongs to a range of IPv4, if the cluster has pods of that family.
fn ipv6_of(net: IpNet, network: &ClusterNetwork) -> Option<IpNet> {
    let IpAddr::V4(v4) = net.address else { return None };
    let [a, b, c, last] = v4.octets().map(u16::from);
    let address = Ipv6Addr::new(0xfd00 | a, b << 8 | c, 0, 0, 0, 0, 0, last);
    network.pod_cidrs.iter().any(|range| !range.is_ipv4()).then(|| IpNet::new(address.into(), 64))?
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
async fn create_token(client: &Client, files: &StartFiles, certificates: Option<SealedCertificates>) -> Result<()> {
    let failed = |error: client::Error| Error::Bootstrap(error.to_string());
    let (token, secret) = token::for_simulated_hosts(SystemClock.now())?;
    let created = client.create(SECRETS, "kube-system", &secret).await.map_err(failed)?;
    if let Some(certificates) = certificates {
        certificates.publish(client, &token, &created).await.map_err(failed)?;
        write_private(&files.certificate_key, certificates.key())?;
    }
    write_private(&files.token, &token)
}

pub(super) fn spec(options: &HostOptions, link: &NodeLink, id: HostId, files: &StartFiles) -> Result<Spec> {
    let too_many = || Error::Flags(vec![format!("--nodes: at most {MAX_NODES} nodes are supported")]);
    let host = link.host(id).ok_or_else(too_many)?;
    let (name, dir) = (id.name(&options.node_name), options.directory(id));
    let address = host.net.address;
    let program = match (id, &options.servers) {
        (HostId::Member(number), Some(servers)) => servers.member(number, &options.node_name, &dir),
        (HostId::Server(_), Some(servers)) => Some(Program::Own(servers.arguments(options, id, address, files))),
        _ => Some(Program::Own(agent_arguments(options, id, &host, files))),
    };
    let program = program.ok_or_else(|| Error::Flags(vec![format!("{name}: there is no such host")]))?;
    Ok(Spec { cgroup: format!("{}/{name}", link.cgroup), name, dir, link: host, program })
}

fn agent_arguments(options: &HostOptions, id: HostId, host: &HostLink, files: &StartFiles) -> Vec<String> {
    let addresses: Vec<String> =
        std::iter::once(host.net).chain(host.net6).map(|net| net.address.to_string()).collect();
    let name = id.name(&options.node_name);
    let data_dir = agent_dir(options, id);
    let mut words: Vec<String> =
        ["agent", "--stop-pods", "--server", &files.server, "--node-name", &name].map(Into::into).into();
    words.extend(["--data-dir".to_string(), path_text(&data_dir), "--node-ip".to_string(), addresses.join(",")]);
    words.extend(["--log-level".to_string(), options.log_level.name().to_string()]);
    if !has_joined(options, id) {
        words.extend(["--token-file".to_string(), path_text(&files.token)]);
        words.extend(["--discovery-token-ca-cert-hash".to_string(), ca_hash(options)]);
    }
    words.extend(["--kubelet-config".to_string(), path_text(&files.config)]);
    words.extend(options.disable.iter().flat_map(|part| ["--disable".to_string(), part.clone()]));
    words
}

pub(super) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The hash of the CA's public key, by which hosts verify the cluster.
pub(super) fn ca_hash(options: &HostOptions) -> String {
    fingerprints(&options.ca).unwrap_or_default().into_iter().next().unwrap_or_default()
}

/// Waits until the nodes of the hosts are ready. `since` is the time at which they were started: an older status is that
/// of an earlier start.
pub(super) async fn wait_until_ready(
    client: &Client,
    options: &HostOptions,
    ids: &[HostId],
    hosts: &mut [&mut Host],
    since: i64,
) -> Result<()> {
    let nodes = ids.iter().filter(|id| id.is_node());
    let waiting: BTreeSet<String> = nodes.map(|id| id.name(&options.node_name)).collect();
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
