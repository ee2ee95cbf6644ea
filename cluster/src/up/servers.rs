//! `up --servers N`: a highly available cluster on simulated hosts. The servers are nodes too and share an etcd cluster of
//! three members, each on a host of its own. This process is none of them: it starts the hosts, and passes connections to
//! its port on to a server that responds.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ::hosts::Program;
use client::Client;
use tokio::net::TcpListener;

use super::SimulatedNodes;
use super::etcd::{EtcdBinary, EtcdClient, EtcdCluster};
use super::host_id::{HostId, MEMBERS};
use super::hosts::{self, HostOptions, NodeLink, StartFiles, ca_hash, path_text};
use super::nodes::{self, RunningHosts};
use crate::component::remote::Remote;
use crate::error::{Error, Result};
use crate::machine::network::{Claim, ClusterNetwork};
use crate::node::servers::FixedServers;
use crate::node::servers::list::ServerAddress;
use crate::pki::bundle::ServerSettings;
use crate::pki::kubeconfig::{Kubeconfigs, write_kubeconfig};
use crate::pki::subjects::{ADMIN, CAS, subjects};
use crate::pki::{CertificateAndKey, Pki};

/// The data of a server, below the directory of its host.
const DATA: &str = "server";
/// The port of every server.
const PORT: u16 = 6443;
/// The kubeconfig of this process, below the directory of the hosts.
const KUBECONFIG: &str = "kubeconfig";

/// The servers among the hosts.
pub struct ServerOptions {
    pub(super) count: u32,
    etcd: EtcdCluster,
    ranges: Vec<String>,
    /// Flags of `up` that are flags of every server too.
    passed: Vec<String>,
}

impl ServerOptions {
    /// The program of a member of etcd.
    pub(super) fn member(&self, number: u32, first: &str, dir: &Path) -> Option<Program> {
        self.etcd.program(number, first, dir)
    }

    /// The arguments of a server.
    pub(super) fn arguments(
        &self,
        options: &HostOptions,
        id: HostId,
        address: IpAddr,
        files: &StartFiles,
    ) -> Vec<String> {
        let EtcdClient { endpoints, ca, certificate, key } = self.etcd.client();
        let mut words: Vec<String> = ["server", "--agent", "--stop-pods"].map(String::from).into();
        let mut set = |name: &str, value: String| words.push(format!("--{name}={value}"));
        set("data-dir", path_text(&data_dir(options, id)));
        set("node-name", id.name(&options.node_name));
        set("bind-address", address.to_string());
        set("port", PORT.to_string());
        set("log-level", options.log_level.name().to_string());
        set("etcd-servers", endpoints.join(","));
        set("etcd-cafile", path_text(&ca));
        set("etcd-certfile", path_text(&certificate));
        set("etcd-keyfile", path_text(&key));
        set("kubelet-config", path_text(&files.config));
        options.disable.iter().for_each(|part| set("disable", part.clone()));
        if id != HostId::Server(1) {
            set("server", files.server.clone());
            if !has_joined(options, id) {
                set("token-file", path_text(&files.token));
                set("discovery-token-ca-cert-hash", ca_hash(options));
                set("certificate-key-file", path_text(&files.certificate_key));
            }
        }
        words.extend(self.ranges.iter().chain(&self.passed).cloned());
        words
    }
}

/// The data directory of a server.
pub(super) fn data_dir(options: &HostOptions, id: HostId) -> PathBuf {
    options.directory(id).join(DATA)
}

/// Whether a server has the certificates of the control plane.
pub(super) fn has_joined(options: &HostOptions, id: HostId) -> bool {
    ServerSettings::read(&data_dir(options, id)).is_ok_and(|settings| settings.is_some())
}

/// The URL of a server.
pub(super) fn url(link: &NodeLink, number: u32) -> String {
    let address = link.host(HostId::Server(number)).map(|host| SocketAddr::new(host.net.address, PORT));
    address.map(|address| format!("https://{address}")).unwrap_or_default()
}

/// The options of `up` with several servers.
pub struct Servers {
    /// How many.
    pub count: u32,
    /// Their store.
    pub etcd: EtcdBinary,
    /// The data directory of the cluster.
    pub data_dir: PathBuf,
    /// The address of this machine at which the servers are reached.
    pub listen: SocketAddr,
    /// The kubeconfigs of the administrator.
    pub kubeconfigs: Kubeconfigs,
    /// The prefix of the names of hosts.
    pub node_name: String,
    /// The ranges of pods and services.
    pub network: ClusterNetwork,
    /// Keeps other clusters of this machine from the ranges.
    pub claim: Claim,
    /// Flags of `up` that are flags of every server too.
    pub passed: Vec<String>,
    /// The nodes, servers included.
    pub nodes: SimulatedNodes,
    /// Their link.
    pub link: NodeLink,
}

/// A running cluster of several servers.
pub struct RunningServers {
    /// The address at which the servers are reached.
    pub address: SocketAddr,
    hosts: RunningHosts,
    listener: FixedServers,
    _claim: Claim,
}

impl RunningServers {
    /// Stops all hosts: nodes first, members of etcd last. Returns what could not be removed.
    pub async fn stop(self) -> Vec<String> {
        let left = self.hosts.stop().await;
        self.listener.stop();
        left
    }
}

/// Starts the hosts and waits until all nodes are ready, then writes the kubeconfig.
pub async fn start(servers: Servers, progress: &dyn Fn(&str)) -> Result<RunningServers> {
    let Servers { count, data_dir, listen, kubeconfigs, link, .. } = &servers;
    let (count, listen, kubeconfigs) = (*count, *listen, kubeconfigs.clone());
    progress("certificates");
    let listener = TcpListener::bind(listen).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse(listen, "choose another one by --port"),
        _ => Error::Listen { address: listen, source },
    })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: listen, source })?;
    let all = (1..=count).map(|number| ServerAddress::of_url(&url(link, number))).collect::<Result<_>>()?;
    let own = hosts::directory(data_dir).join(KUBECONFIG);
    let (options, admin) = host_options(&servers)?;
    let ca = CertificateAndKey { certificate: options.ca.clone(), ..CertificateAndKey::default() };
    write_kubeconfig(&own, address, &ca, &admin)?;
    let client = Remote::read("tiphys", KUBECONFIG, &own)?.client();
    let listener = FixedServers::start(listener, &all, own);
    let hosts = start_hosts(client, options, servers.link, progress).await.inspect_err(|_| listener.stop())?;
    progress("kubeconfig");
    kubeconfigs.write(address, &ca, &admin, true)?;
    Ok(RunningServers { address, hosts, listener, _claim: servers.claim })
}

/// The options of the hosts, and the certificate of the administrator. The CA is that of the first server, which gives it
/// to the others.
fn host_options(servers: &Servers) -> Result<(HostOptions, CertificateAndKey)> {
    let Servers { count, etcd, data_dir, node_name, network, passed, nodes, link, .. } = servers;
    let members = (1..=MEMBERS).filter_map(|number| Some(link.host(HostId::Member(number))?.net.address)).collect();
    let etcd = EtcdCluster::create(etcd.clone(), &hosts::directory(data_dir), members)?;
    let range = |flag: &str, ranges: &[stdx::cidr::IpNet]| {
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        format!("--{flag}={}", ranges.join(","))
    };
    let ranges = vec![range("cluster-cidr", &network.pod_cidrs), range("service-cidr", &network.service_cidrs)];
    let SimulatedNodes { nodes, kubelet_config, disable, log_level } = nodes;
    let mut options = HostOptions {
        nodes: *nodes,
        data_dir: data_dir.clone(),
        node_name: node_name.clone(),
        server: String::new(),
        ca: String::new(),
        servers: Some(ServerOptions { count: *count, etcd, ranges, passed: passed.clone() }),
        kubelet_config: kubelet_config.clone(),
        disable: disable.clone(),
        log_level: *log_level,
    };
    let pki = Pki::open(self::data_dir(&options, HostId::Server(1)).join("pki"))?;
    let (file, name) = CAS[0];
    let ca = pki.ensure_ca(file, name)?;
    let admin = subjects("", Vec::new(), Vec::new()).into_iter().find(|subject| subject.file == ADMIN);
    let admin = admin.map(|subject| pki.leaf(&ca, &subject)).transpose()?.unwrap_or_default();
    options.ca = ca.certificate;
    Ok((options, admin))
}

/// Members of etcd first, then one server, which the others join.
async fn start_hosts(
    client: Client,
    options: HostOptions,
    link: NodeLink,
    progress: &dyn Fn(&str),
) -> Result<RunningHosts> {
    let (count, servers) = (options.nodes, options.server_count());
    let etcd = options.servers.as_ref().map(|servers| servers.etcd.client());
    let (members, rest): (Vec<_>, Vec<_>) = (
        (1..=MEMBERS).map(HostId::Member).collect(),
        (2..=count).map(|number| HostId::node(number, servers)).collect(),
    );
    let starting = nodes::Starting::new(client, options, link);
    let started = async {
        progress("etcd");
        starting.start(&members).await?;
        if let Some(etcd) = etcd {
            etcd.wait_for_leader().await?;
        }
        progress("first server");
        starting.start(&[HostId::Server(1)]).await?;
        progress("nodes");
        starting.start(&rest).await
    };
    let outcome = started.await;
    starting.finish(outcome).await
}

/// Why a data directory cannot be started with this number of servers.
pub(crate) fn check_data_dir(data_dir: &Path, servers: u32) -> Result<()> {
    let kept = NodeLink::read(data_dir)?.map_or(0, |link| link.servers());
    let dir = data_dir.display();
    let why = match (kept, servers) {
        (0, 1) => return Ok(()),
        (kept, servers) if kept == servers => return Ok(()),
        (0, _) if !data_dir.join("pki").exists() && !data_dir.join("store").exists() => return Ok(()),
        (0, _) => format!(
            "{dir} has a cluster of one server: use another --data-dir, and move the objects by `tiphys store copy`"
        ),
        (kept, _) => format!("{dir} has a cluster of {kept} servers: start it with --servers {kept}"),
    };
    Err(Error::Flags(vec![format!("--servers: {why}")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_keeps_its_number_of_servers() {
        let dir = tempfile::tempdir().expect("a directory");
        let why = |servers: u32| check_data_dir(dir.path(), servers).err().map(|error| error.describe());
        assert_eq!((why(1), why(3)), (None, None), "a new one");
        std::fs::create_dir(dir.path().join("pki")).expect("a directory");
        assert_eq!(why(1), None);
        assert!(why(3).is_some_and(|why| why.contains("has a cluster of one server")));
        let hosts = dir.path().join("nodes");
        std::fs::create_dir(&hosts).expect("a directory");
        let link = r#"{"net":"172.30.0.1/24","prefix":"tiphys0","cgroup":"/c","servers":3}"#;
        std::fs::write(hosts.join("link.json"), link).expect("a file");
        assert_eq!(why(3), None);
        for other in [1, 2] {
            assert!(why(other).is_some_and(|why| why.contains("start it with --servers 3")));
        }
    }
}
