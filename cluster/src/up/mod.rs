//! `tiphys up`: a whole cluster on this machine, with its own certificates.

pub mod arguments;
pub(crate) mod etcd;
mod host_id;
pub mod hosts;
pub mod nodes;
pub mod servers;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scheduler::config::Configuration;
use server::authentication::request_header::Names;
use server::authentication::token::Tokens;
use server::authentication::{Anonymous, Authentication, CaBundle, RequestHeader};
use server::registry::admission::Setup;
use server::tls::Serving;
use stdx::cidr::IpNet;

use crate::apiserver::flags::Flags;
use crate::control_plane::addons::NodeDns;
use crate::control_plane::in_process::administrator;
use crate::control_plane::{self, ControlPlane, Controllers, Plan, PodFacingAddress, addons};
use crate::error::{Error, Result};
use crate::logs::Level;
use crate::machine::address;
use crate::machine::lock::Lock;
use crate::machine::network::ClusterNetwork;
use crate::machine::pod_address::PodDevices;
use crate::node::options as node_options;
use crate::pki::Pki;
use crate::pki::cluster::ClusterPki;
use crate::pki::credentials::{self, Credentials, CredentialsRefresher, LoadCredentials};
use crate::pki::kubeconfig::Kubeconfigs;
use crate::pki::subjects::PROXY_CLIENT;
use crate::{apiserver, controller_manager};
use hosts::{HostOptions, NodeLink};
use nodes::RunningHosts;

/// All controllers, including those for joining machines, which upstream does not run by default.
pub const CONTROLLERS: &str = "*,bootstrap-signer-controller,token-cleaner-controller";

/// The options of `up`.
pub struct Up {
    pub data_dir: PathBuf,
    /// The lock of the data directory.
    pub lock: Option<Lock>,
    pub listen: SocketAddr,
    /// The kubeconfigs of its administrator.
    pub kubeconfig: Kubeconfigs,
    /// Names and addresses of the serving certificate, besides those that every cluster has.
    pub tls_sans: Vec<String>,
    /// Which controllers run: `*` for all, a name for one, `-name` for all but it.
    pub controllers: Vec<String>,
    /// The flags of the controllers.
    pub manager: controller_manager::flags::Flags,
    /// The scheduler's configuration; None without a scheduler.
    pub scheduler: Option<Configuration>,
    /// The number of fake nodes.
    pub fake_nodes: u32,
    /// The options of this machine's kubelet; None without one.
    pub agent: Option<Box<node_options::Options>>,
    /// The flags of the API server.
    pub apiserver: Flags,
    /// The ranges of pods and services.
    pub network: ClusterNetwork,
    /// The network between the pods of different nodes; None if no other machine can join.
    pub pod_network: Option<overlay::Config>,
    /// Whether nodes that join serve the DNS of the cluster, if this machine has no node that decides about it.
    pub nodes_serve_dns: bool,
    /// The simulated hosts of further nodes, and their link; None without them.
    pub hosts: Option<(SimulatedNodes, NodeLink)>,
}

impl Up {
    /// The address of this machine on the link to simulated hosts.
    fn link_address(&self) -> Option<IpAddr> {
        self.hosts.as_ref().map(|(_, link)| link.address())
    }

    /// Whether only this machine reaches the server.
    fn is_on_loopback(&self) -> bool {
        self.listen.ip().is_loopback() && self.apiserver.advertise_address.is_none()
    }
}

/// The further nodes of this machine.
pub struct SimulatedNodes {
    /// The number of nodes, with that of this machine.
    pub nodes: u32,
    /// The KubeletConfiguration of all nodes.
    pub kubelet_config: api::Tree,
    /// Parts of the nodes that do not run.
    pub disable: Vec<String>,
    /// The log level of the nodes.
    pub log_level: Level,
}

/// A running cluster.
pub struct RunningCluster {
    /// The control plane, with the node of this machine.
    pub control_plane: ControlPlane,
    /// Its further nodes.
    pub hosts: Option<RunningHosts>,
}

/// Enabled besides upstream's defaults: a kubelet may only write its own node and pods.
const PLUGINS: [&str; 1] = ["NodeRestriction"];

/// Starts the cluster and writes the kubeconfig of its administrator.
pub async fn up(mut options: Up, progress: &dyn Fn(&str)) -> Result<RunningCluster> {
    progress("certificates");
    options.apiserver.config.service_cidrs = options.network.service_cidrs.iter().map(IpNet::network).collect();
    // Pods of this machine are reached without the rules of a proxy.
    options.apiserver.config.aggregation.routes_to_endpoints = true;
    apiserver::flags_checked(&options.apiserver, true)?;
    let pki = open_pki(&mut options)?;
    let flags = &options.apiserver;
    let load = loader(&pki, flags);
    let current = load()?;
    let serving = credentials::serving(&current)?;
    let followed = apiserver::followed(flags)?;
    let watched = apiserver::watched(flags, Some(&pki));
    let plan = cluster_plan(&mut options, &pki, &current, serving.clone())?;
    let node_name = plan.agent.as_ref().map(|agent| agent.config.node_name.clone()).unwrap_or_default();
    let node_dns = match &plan.agent {
        Some(agent) => Some(NodeDns::of(agent)),
        // The first server of a control plane whose nodes are all on other machines.
        None => (options.nodes_serve_dns && options.pod_network.is_some()).then(|| NodeDns::at(&options.network)),
    };
    let running = control_plane::start(plan, progress).await?;
    let ca = current.admin.as_ref().map_or("", |(ca, _)| ca.certificate.as_str());
    create_addons(&running, &options, node_dns, ca).await?;
    let (running, hosts) = start_hosts(running, &mut options, node_name, ca, progress).await?;
    progress("kubeconfig");
    if let Some((ca, admin)) = &current.admin {
        options.kubeconfig.write(running.address, ca, admin, true)?;
    }
    let kubeconfig = Some((options.kubeconfig, running.address));
    let refresher = CredentialsRefresher { watched, load, current, serving, kubeconfig };
    tokio::spawn(refresher.run(running.server.clone()));
    for followed in followed {
        tokio::spawn(followed.run(running.server.clone()));
    }
    Ok(RunningCluster { control_plane: running, hosts })
}

/// The certificates of the data directory, with those of this machine's kubelet.
fn open_pki(options: &mut Up) -> Result<ClusterPki> {
    let config = apiserver::config(&options.apiserver);
    let link = options.link_address();
    let machine = machine_addresses(options);
    let pki = Pki::open(options.data_dir.join("pki"))?;
    let mut sans = options.tls_sans.clone();
    sans.extend(options.network.api_server_address().into_iter().chain(link).map(|address| address.to_string()));
    let pki = ClusterPki::new(pki, options.listen.ip(), &config, &sans)?.verifying_kubelets();
    match &mut options.agent {
        Some(agent) => pki.with_kubelet(&mut agent.config, machine),
        None => Ok(pki),
    }
}

/// The control plane and the node of this machine; takes the node's options, the scheduler's and the lock.
fn cluster_plan(options: &mut Up, pki: &ClusterPki, current: &Credentials, serving: Arc<Serving>) -> Result<Plan> {
    let flags = &options.apiserver;
    let is_shared = !flags.etcd_servers.is_empty();
    let plan = apiserver_plan(flags, pki, current, serving)?;
    let controllers = controller_options(options, pki, &plan.config)?;
    Ok(Plan {
        port_hint: "choose another one by --port",
        pod_address: pod_facing_address(options),
        controllers: Some(Controllers { chosen: options.controllers.clone(), options: controllers }),
        scheduler: options.scheduler.take(),
        cluster_ca: is_shared.then(|| current.admin.as_ref().map(|(ca, _)| ca.certificate.clone())).flatten(),
        manifests: Some(options.data_dir.clone()),
        fake_nodes: options.fake_nodes,
        agent: options.agent.take(),
        lock: options.lock.take(),
        ..plan
    })
}

/// The address at which the pods of this machine reach the server; None if they use the one that it listens on.
fn pod_facing_address(options: &Up) -> Option<PodFacingAddress> {
    let link = options.link_address();
    let address = link.or(options.network.api_server_address())?;
    // A server that listens on other addresses is reachable for pods there.
    (options.agent.is_some() && options.is_on_loopback()).then(|| PodFacingAddress {
        address,
        fallback: machine_addresses(options)[0],
        is_of_device: link.is_some(),
        devices: pod_devices(options),
    })
}

async fn create_addons(running: &ControlPlane, options: &Up, node_dns: Option<NodeDns>, ca: &str) -> Result<()> {
    let address = address::joined_at(running.address);
    addons::create(&running.server, &options.controllers, &address, ca).await?;
    addons::create_node_services(&running.server, node_dns).await?;
    match &options.pod_network {
        Some(network) => addons::create_pod_network(&running.server, network).await,
        None => Ok(()),
    }
}

/// Starts the simulated hosts of further nodes, if there are any; stops the control plane where that fails.
async fn start_hosts(
    running: ControlPlane,
    options: &mut Up,
    node_name: String,
    ca: &str,
    progress: &dyn Fn(&str),
) -> Result<(ControlPlane, Option<RunningHosts>)> {
    let is_on_loopback = options.is_on_loopback();
    let Some((simulated, link)) = options.hosts.take() else { return Ok((running, None)) };
    progress("nodes");
    let server = match is_on_loopback {
        true => format!("https://{}", SocketAddr::new(link.address(), running.address.port())),
        false => address::joined_at(running.address),
    };
    let host_options = HostOptions {
        nodes: simulated.nodes,
        data_dir: options.data_dir.clone(),
        node_name,
        server,
        ca: ca.to_string(),
        servers: None,
        kubelet_config: simulated.kubelet_config,
        disable: simulated.disable,
        log_level: simulated.log_level,
    };
    match nodes::start(administrator(&running.server), host_options, link).await {
        Ok(hosts) => Ok((running, Some(hosts))),
        Err(error) => {
            running.stop().await;
            Err(error)
        }
    }
}

/// The addresses of this machine's node: that of the link to simulated hosts, or one for each family of pods.
fn machine_addresses(options: &Up) -> Vec<IpAddr> {
    if let Some((_, link)) = &options.hosts {
        return link.addresses();
    }
    let families = options.network.pod_cidrs.iter().map(IpNet::is_ipv4);
    options
        .apiserver
        .advertise_address
        .map_or_else(|| address::of_families(options.listen.ip(), families), |address| vec![address])
}

/// The devices behind which the pods of the cluster are.
fn pod_devices(options: &Up) -> PodDevices {
    if !options.agent.as_ref().is_some_and(|agent| agent.runtime.uses_builtin_network()) {
        return PodDevices::Veths;
    }
    let bridge = options.network.names().bridge;
    let overlay = [true, false].map(|is_ipv4| overlay::kernel::device_name(&bridge, is_ipv4));
    // Machines that join from elsewhere need another address: with this one, other nodes are simulated hosts.
    let of_hosts =
        options.hosts.iter().flat_map(|(_, link)| [link.device().to_string()].into_iter().chain(overlay.clone()));
    PodDevices::Named([bridge.clone()].into_iter().chain(of_hosts).collect())
}

/// The API server by its flags, with the defaults of `up`.
fn apiserver_plan(flags: &Flags, own: &ClusterPki, current: &Credentials, serving: Arc<Serving>) -> Result<Plan> {
    // The cluster's own front proxy has another name than those of the flags.
    let has_proxies = flags.authentication.proxy_ca_file.is_some();
    let of_flags = Credentials { proxies: current.proxies.clone().filter(|_| has_proxies), ..current.clone() };
    let mut plan = apiserver::plan(flags, Some(own), &of_flags, serving)?;
    let usual = authentication(current, own.tokens()?, &plan.config)?;
    if !has_proxies {
        plan.authentication.request_header = usual.request_header;
    }
    if flags.authentication.anonymous.is_none() && flags.authentication.config_file.is_none() {
        plan.authentication.anonymous = usual.anonymous;
    }
    Ok(plan)
}

/// The options of the controllers: their flags, then the defaults of `up`.
fn controller_options(options: &Up, own: &ClusterPki, config: &server::Config) -> Result<Arc<controllers::Options>> {
    let (flags, mut controller_settings) = (&options.manager, controller_manager::read_options(&options.manager)?);
    let usual = own.controller_options(config)?;
    let or = |text: &mut String, usual: &String| {
        if text.is_empty() {
            text.clone_from(usual);
        }
    };
    or(&mut controller_settings.root_ca, &usual.root_ca);
    or(&mut controller_settings.service_account_private_key, &usual.service_account_private_key);
    controller_settings.cluster_signing = controller_settings.cluster_signing.or(&usual.cluster_signing);
    if controller_settings.service_cluster_ip_range.is_empty() {
        controller_settings.service_cluster_ip_range.clone_from(&usual.service_cluster_ip_range);
    }
    if !flags.common.given.contains(&"allocate-node-cidrs") {
        // Each joining machine needs a range; fake nodes may outnumber the ranges.
        controller_settings.allocate_node_cidrs = options.agent.is_some() || options.fake_nodes == 0;
    }
    controller_settings.cluster_cidr = options.network.pod_cidrs.iter().map(ToString::to_string).collect();
    controller_settings.balance_by_nodes = usual.balance_by_nodes;
    // Machines that join with `agent` request serving certificates.
    controller_settings.approve_kubelet_serving = true;
    controller_settings.local_path_directory = volumes(&options.data_dir)?;
    Ok(Arc::new(controller_settings))
}

/// The admission plugins of a cluster that `up` creates.
pub fn admission() -> Result<Arc<Setup>> {
    Ok(Setup::new(&PLUGINS.map(str::to_string), &[], None).map_err(Error::Flags)?.into())
}

/// The directory of local volumes. The path is absolute, because volumes store it.
fn volumes(data_dir: &Path) -> Result<String> {
    let path = std::path::absolute(data_dir.join("volumes")).map_err(Error::file(data_dir))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Authentication for a cluster with only its own certificates and tokens.
pub fn authentication(current: &Credentials, tokens: Tokens, config: &server::Config) -> Result<Authentication> {
    let read = |pem: &Option<String>| pem.as_deref().map(parse_ca_bundle).transpose();
    let proxies = |ca_bundle| RequestHeader::new(ca_bundle, vec![PROXY_CLIENT.to_string()], Names::default_names());
    Ok(Authentication {
        clients: read(&current.clients)?,
        request_header: read(&current.proxies)?
            .map(proxies)
            .transpose()
            .map_err(|error| Error::Flags(vec![error.to_string()]))?,
        tokens: Some(tokens),
        bootstrap_tokens: true,
        anonymous: Anonymous::minimal(),
        audiences: config.issuers.clone(),
        ..Authentication::default()
    })
}

fn parse_ca_bundle(pem: &str) -> Result<CaBundle> {
    CaBundle::new(pem).map_err(|why| Error::Pem { path: "a CA bundle".into(), source: why.into() })
}

/// Loads the credentials of the flags, and those of the data directory where the flags name none. The administrator's
/// certificate stays valid.
fn loader(own: &ClusterPki, flags: &Flags) -> LoadCredentials {
    let (own, of_flags) = (own.clone(), apiserver::loader(flags, Some(own.clone())));
    let has_clients = flags.client_ca_file.is_some();
    Box::new(move || {
        let (mut loaded, own) = (of_flags()?, own.load()?);
        loaded.proxies = loaded.proxies.or(own.proxies);
        loaded.kubelet_ca = loaded.kubelet_ca.or(own.kubelet_ca);
        if has_clients {
            loaded.clients = loaded.clients.map(|pem| pem + own.clients.as_deref().unwrap_or_default());
        }
        Ok(loaded)
    })
}
