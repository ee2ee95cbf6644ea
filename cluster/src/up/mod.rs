//! `tiphys up`: a whole cluster on this machine, with its own certificates.

pub mod arguments;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scheduler::config::Configuration;
use server::authentication::request_header::Names;
use server::authentication::token::Tokens;
use server::authentication::{Anonymous, Authentication, CaBundle, RequestHeader};
use server::registry::admission::Setup;
use server::tls::Serving;

use crate::apiserver::flags::Flags;
use crate::control_plane::addons::NodeDns;
use crate::control_plane::{self, Controllers, ForPods, Plan, Running, addons};
use crate::error::{Error, Result};
use crate::machine::address;
use crate::machine::lock::Lock;
use crate::machine::network::ClusterNetwork;
use crate::node::options as node_options;
use crate::pki::Pki;
use crate::pki::cluster::ClusterPki;
use crate::pki::credentials::{self, Credentials, Keeper, Load};
use crate::pki::kubeconfig::write_kubeconfig;
use crate::pki::subjects::PROXY_CLIENT;
use crate::{apiserver, controller_manager};

/// All controllers, including those for joining machines, which upstream does not run by default.
pub const CONTROLLERS: &str = "*,bootstrap-signer-controller,token-cleaner-controller";

/// The options of `up`.
pub struct Up {
    pub data_dir: PathBuf,
    /// Of the data directory.
    pub lock: Lock,
    pub listen: SocketAddr,
    pub kubeconfig: PathBuf,
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
}

/// What is on besides upstream's defaults: a kubelet writes its own node and pods alone.
const PLUGINS: [&str; 1] = ["NodeRestriction"];

/// Starts the cluster and writes the kubeconfig of its administrator.
pub async fn up(mut options: Up, progress: &dyn Fn(&str)) -> Result<Running> {
    progress("certificates");
    let service_cidrs = options.network.service_cidrs.iter().map(|cidr| (cidr.network().address, cidr.prefix()));
    options.apiserver.config.service_cidrs = service_cidrs.collect();
    let flags = apiserver::flags_checked(&options.apiserver, true)?;
    let machine = address::advertised(options.listen.ip());
    let config = apiserver::config(flags);
    let pki = Pki::open(options.data_dir.join("pki"))?;
    let mut sans = options.tls_sans.clone();
    let for_pods = options.network.api_server_address();
    sans.extend(for_pods.map(|address| address.to_string()));
    let mut own = ClusterPki::new(pki, options.listen.ip(), &config, &sans)?.verifying_kubelets();
    if let Some(agent) = &mut options.agent {
        own = own.with_kubelet(&mut agent.config, machine)?;
    }
    let load = loader(&own, flags);
    let current = load()?;
    let serving = credentials::serving(&current)?;
    let followed = apiserver::followed(flags)?;
    let plan = apiserver_plan(flags, &own, &current, serving.clone())?;
    let told = controller_options(&options, &own, &plan.config)?;
    let is_on_loopback = options.listen.ip().is_loopback() && flags.advertise_address.is_none();
    let watched = apiserver::watched(flags, Some(&own));
    let plan = Plan {
        port_hint: "choose another one by --port",
        // A server that listens on other addresses is reached by pods there.
        pod_address: for_pods
            .filter(|_| options.agent.is_some() && is_on_loopback)
            .map(|address| ForPods { address, fallback: machine }),
        controllers: Some(Controllers { chosen: options.controllers.clone(), options: told }),
        scheduler: options.scheduler,
        fake_nodes: options.fake_nodes,
        agent: options.agent,
        lock: Some(options.lock),
        ..plan
    };
    let node_dns = plan.agent.as_ref().map(|agent| NodeDns::of(agent));
    let running = control_plane::start(plan, progress).await?;
    let ca = current.admin.as_ref().map_or("", |(ca, _)| ca.certificate.as_str());
    addons::create(&running.server, &options.controllers, &address::joined_at(running.address), ca).await?;
    addons::create_node_services(&running.server, node_dns).await?;
    progress("kubeconfig");
    if let Some((ca, admin)) = &current.admin {
        write_kubeconfig(&options.kubeconfig, running.address, ca, admin)?;
    }
    let keeper = Keeper { watched, load, current, serving, kubeconfig: Some((options.kubeconfig, running.address)) };
    tokio::spawn(keeper.run(running.server.clone()));
    for followed in followed {
        tokio::spawn(followed.run(running.server.clone()));
    }
    Ok(running)
}

/// The API server by its flags; what they leave open is as a cluster of ours has it.
fn apiserver_plan(flags: &Flags, own: &ClusterPki, current: &Credentials, serving: Arc<Serving>) -> Result<Plan> {
    // The cluster's own proxies are known by other names than those of flags.
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
    let (flags, mut told) = (&options.manager, controller_manager::read_options(&options.manager)?);
    let usual = own.controller_options(config)?;
    let or = |text: &mut String, usual: &String| {
        if text.is_empty() {
            text.clone_from(usual);
        }
    };
    or(&mut told.root_ca, &usual.root_ca);
    or(&mut told.service_account_private_key, &usual.service_account_private_key);
    told.cluster_signing = told.cluster_signing.or(&usual.cluster_signing);
    if told.service_cluster_ip_range.is_empty() {
        told.service_cluster_ip_range.clone_from(&usual.service_cluster_ip_range);
    }
    if !flags.common.given.contains(&"allocate-node-cidrs") {
        // Machines that join need a range each; nodes that run nothing may be more than there are ranges.
        told.allocate_node_cidrs = options.agent.is_some() || options.fake_nodes == 0;
    }
    told.cluster_cidr = options.network.pod_cidrs.iter().map(ToString::to_string).collect();
    told.balance_by_nodes = usual.balance_by_nodes;
    // Machines that join with `agent` request serving certificates.
    told.approve_kubelet_serving = true;
    told.local_path_directory = volumes(&options.data_dir)?;
    Ok(Arc::new(told))
}

/// What every object of a cluster of ours passes.
pub fn admission() -> Result<Arc<Setup>> {
    Ok(Setup::new(&PLUGINS.map(str::to_string), &[], None).map_err(Error::Flags)?.into())
}

/// Where the directories of local volumes are. A volume names its directory for good, so that the path is whole.
fn volumes(data_dir: &Path) -> Result<String> {
    let path = std::path::absolute(data_dir.join("volumes")).map_err(Error::file(data_dir))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Who is known in a cluster that has nothing but its own certificates and tokens.
pub fn authentication(current: &Credentials, tokens: Tokens, config: &server::Config) -> Result<Authentication> {
    let read = |pem: &Option<String>| pem.as_deref().map(parse_ca_bundle).transpose();
    let proxies = |ca_bundle| RequestHeader::new(ca_bundle, vec![PROXY_CLIENT.to_string()], Names::usual());
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

/// What the flags name, and of the data directory what they do not. The administrator's certificate stays good.
fn loader(own: &ClusterPki, flags: &Flags) -> Load {
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
