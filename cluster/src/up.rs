//! `tiphys up`: a whole cluster on this machine, with certificates of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scheduler::config::Configuration;
use server::authentication::request_header::Names;
use server::authentication::token::Tokens;
use server::authentication::{Anonymous, Authentication, Authorities, RequestHeader};
use server::outbound::callout::Identity;
use server::registry::admission::Setup;
use server::tls::Serving;

use crate::apiserver::flags::Flags;
use crate::boot::{self, Controllers, Plan, Running};
use crate::components::{self, ADMIN, KUBELET_CLIENT, KUBELET_SERVING, PROXY_CLIENT, SERVING};
use crate::credentials::{self, Credentials, Keeper, Load};
use crate::error::{Error, Result};
use crate::kubeconfig;
use crate::leader::ReadIdentity;
use crate::machine::lock::Lock;
use crate::machine::pod_address;
use crate::pki::{Pair, Pki, Subject, write_private};
use crate::{addons, agent, apiserver, manager};

/// All controllers, and those for machines that join, which upstream leaves to whoever sets a cluster up.
pub const CONTROLLERS: &str = "*,bootstrap-signer-controller,token-cleaner-controller";

/// What `up` is told.
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
    /// What the controllers are told by flags of theirs.
    pub manager: manager::flags::Flags,
    /// What the scheduler is told; none where pods get their nodes elsewhere.
    pub scheduler: Option<Configuration>,
    /// How many nodes there are that run nothing but behave.
    pub fake_nodes: u32,
    /// What the node agent of this machine is told; none where there shall be none.
    pub agent: Option<Box<agent::Options>>,
    /// The flags of the API server.
    pub apiserver: Flags,
}

/// What is on besides upstream's defaults: a kubelet writes its own node and pods alone.
const PLUGINS: [&str; 1] = ["NodeRestriction"];

/// Where pods get their addresses from.
const POD_RANGE: &str = "10.42.0.0/16";

/// Starts the cluster and writes the kubeconfig of its administrator.
pub async fn up(mut options: Up, progress: &dyn Fn(&str)) -> Result<Running> {
    progress("certificates");
    let flags = apiserver::flags_checked(&options.apiserver, true)?;
    let machine = advertised(options.listen.ip());
    let config = apiserver::config(flags);
    let pki = Pki::open(options.data_dir.join("pki"))?;
    let mut sans = options.tls_sans.clone();
    sans.push(pod_address::ADDRESS.to_string());
    let mut own = Own::new(pki, options.listen.ip(), &config, &sans)?.verifying_kubelets();
    if let Some(agent) = &mut options.agent {
        own = own.with_kubelet(agent, machine)?;
    }
    let load = own.loader(flags);
    let current = load()?;
    let serving = credentials::serving(&current)?;
    let followed = apiserver::followed(flags)?;
    let plan = apiserver_plan(flags, &own, &current, serving.clone())?;
    let told = controller_options(&options, &own, &plan.config)?;
    let is_on_loopback = options.listen.ip().is_loopback() && flags.advertise_address.is_none();
    let watched = apiserver::watched(flags, Some(&own));
    let plan = Plan {
        port_hint: "choose another one by --port",
        // One that listens elsewhere too is reached by pods as by everybody.
        pod_address: (options.agent.is_some() && is_on_loopback).then_some(machine),
        controllers: Some(Controllers { chosen: options.controllers.clone(), options: told }),
        scheduler: options.scheduler,
        fake_nodes: options.fake_nodes,
        agent: options.agent,
        lock: Some(options.lock),
        ..plan
    };
    let running = boot::start(plan, progress).await?;
    let authority = current.admin.as_ref().map_or("", |(authority, _)| authority.certificate.as_str());
    addons::make(&running.server, &options.controllers, &joined_at(running.address), authority).await?;
    progress("kubeconfig");
    if let Some((authority, admin)) = &current.admin {
        write_kubeconfig(&options.kubeconfig, running.address, authority, admin)?;
    }
    let keeper = Keeper { watched, load, current, serving, kubeconfig: Some((options.kubeconfig, running.address)) };
    tokio::spawn(keeper.run(running.server.clone()));
    for followed in followed {
        tokio::spawn(followed.run(running.server.clone()));
    }
    Ok(running)
}

/// The API server by its flags; what they leave open is as a cluster of ours has it.
fn apiserver_plan(flags: &Flags, own: &Own, current: &Credentials, serving: Arc<Serving>) -> Result<Plan> {
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

/// What the controllers are told by their flags; what these leave open is as a cluster of ours has it.
fn controller_options(options: &Up, own: &Own, config: &server::Config) -> Result<Arc<controllers::Options>> {
    let (flags, mut told) = (&options.manager, manager::read_options(&options.manager)?);
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
    if told.cluster_cidr.is_empty() {
        told.cluster_cidr = vec![POD_RANGE.to_string()];
    }
    told.balance_by_nodes = usual.balance_by_nodes;
    // Machines that join by `agent` ask for the certificates of their ports.
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
    let read = |pem: &Option<String>| pem.as_deref().map(authorities).transpose();
    let proxies = |authorities| RequestHeader::new(authorities, vec![PROXY_CLIENT.to_string()], Names::usual());
    let bad = |why: String| Error::Flags(vec![why]);
    Ok(Authentication {
        clients: read(&current.clients)?,
        request_header: read(&current.proxies)?.map(proxies).transpose().map_err(bad)?,
        tokens: Some(tokens),
        bootstrap_tokens: true,
        anonymous: Anonymous::minimal(),
        audiences: config.issuers.clone(),
        ..Authentication::default()
    })
}

fn authorities(pem: &str) -> Result<Authorities> {
    Authorities::new(pem).map_err(|why| Error::Pem { path: "an authority".into(), source: why.into() })
}

/// The certificates of a data directory, made by itself.
#[derive(Clone)]
pub struct Own {
    pub pki: Pki,
    subjects: Vec<Subject>,
    /// What else the certificates of kubelets may be signed by, in PEM; None where they are not verified.
    kubelet_authorities: Option<String>,
}

impl Own {
    pub fn new(pki: Pki, listen: IpAddr, config: &server::Config, sans: &[String]) -> Result<Own> {
        let (names, addresses) = serving_names(listen, config, sans)?;
        let subjects = components::subjects(&server::hostname(), names, addresses);
        Ok(Own { pki, subjects, kubelet_authorities: None })
    }

    /// The certificates of kubelets must be signed by the CA of their ports.
    pub fn verifying_kubelets(self) -> Own {
        Own { kubelet_authorities: Some(String::new()), ..self }
    }

    /// Gives the kubelet of this machine a serving certificate, and its node the address that the certificate is for.
    /// One that its configuration names is verified by itself.
    fn with_kubelet(mut self, agent: &mut agent::Options, machine: IpAddr) -> Result<Own> {
        let config = &mut agent.config;
        if config.node_ips.is_empty() {
            config.node_ips = vec![machine];
        }
        if let Some(file) = &config.certificates.tls_cert_file {
            let pem = std::fs::read_to_string(file).map_err(Error::file(file))?;
            self.kubelet_authorities = Some(pem);
            return Ok(self);
        }
        let file = |end: &str| Some(self.pki.dir().join(format!("{KUBELET_SERVING}.{end}")));
        (config.certificates.tls_cert_file, config.certificates.tls_private_key_file) = (file("crt"), file("key"));
        config.certificates.server_bootstrap = false;
        self.subjects.push(components::kubelet_serving(&config.node_name, &config.node_ips));
        Ok(self)
    }

    /// Those that are there, and new ones for what is missing or due.
    pub fn load(&self) -> Result<Credentials> {
        let made = components::ensure(&self.pki, &self.subjects)?;
        let [authority, proxies, kubelets] = made.authorities.as_slice() else { return Ok(Credentials::default()) };
        let files = components::AUTHORITIES.iter().map(|(file, _)| *file);
        let files = files.chain(self.subjects.iter().map(|subject| subject.file.as_str()));
        Ok(Credentials {
            serving: made.leaf(SERVING),
            clients: Some(authority.certificate.clone()),
            proxies: Some(proxies.certificate.clone()),
            kubelet_client: Some(made.leaf(KUBELET_CLIENT)),
            kubelet_authority: self.kubelet_authorities.as_ref().map(|more| format!("{}{more}", kubelets.certificate)),
            admin: Some((authority.clone(), made.leaf(ADMIN))),
            renewal: files.filter_map(|file| self.pki.renewal_of(file)).min(),
        })
    }

    /// What the flags name, and of the data directory what they do not. The administrator's certificate stays good.
    fn loader(&self, flags: &Flags) -> Load {
        let (own, of_flags) = (self.clone(), apiserver::loader(flags, Some(self.clone())));
        let has_clients = flags.client_ca_file.is_some();
        Box::new(move || {
            let (mut loaded, own) = (of_flags()?, own.load()?);
            loaded.proxies = loaded.proxies.or(own.proxies);
            loaded.kubelet_authority = loaded.kubelet_authority.or(own.kubelet_authority);
            if has_clients {
                loaded.clients = loaded.clients.map(|pem| pem + own.clients.as_deref().unwrap_or_default());
            }
            Ok(loaded)
        })
    }

    /// What the server shows to those whom it asks for others.
    pub fn proxy(&self) -> ReadIdentity {
        let pki = self.pki.clone();
        Arc::new(move || {
            let pair = pki.read(PROXY_CLIENT).map_err(|error| error.describe())?.unwrap_or_default();
            Identity::pem(pair.certificate.as_bytes(), pair.key.as_bytes())
        })
    }

    pub fn tokens(&self) -> Result<Tokens> {
        self.pki.tokens()
    }

    /// What controllers publish and sign with.
    pub fn controller_options(&self, config: &server::Config) -> Result<Arc<controllers::Options>> {
        let (authority, _) = components::AUTHORITIES[0];
        let authority = self.pki.read(authority)?.unwrap_or_default();
        let signer = controllers::Signer { certificate: authority.certificate.clone(), key: authority.key };
        let kubelets = self.pki.read(components::KUBELET_SERVING_CA)?.unwrap_or_default();
        let kubelets = controllers::Signer { certificate: kubelets.certificate, key: kubelets.key };
        let ranges = config.service_cidrs.iter().map(|(network, bits)| format!("{network}/{bits}"));
        Ok(Arc::new(controllers::Options {
            root_ca: authority.certificate,
            cluster_signing: controllers::Signers {
                kubelet_serving: Some(kubelets),
                ..controllers::Signers::all(signer)
            },
            service_account_private_key: self.pki.signing_key()?,
            service_cluster_ip_range: ranges.collect(),
            balance_by_nodes: true,
            ..controllers::Options::default()
        }))
    }
}

/// The kubeconfig of the administrator, for clients of this machine.
pub fn write_kubeconfig(path: &Path, address: SocketAddr, authority: &Pair, admin: &Pair) -> Result<()> {
    let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let text = kubeconfig::write(&url, &authority.certificate, "kubernetes-admin", admin);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    write_private(path, &String::from_utf8_lossy(&text))
}

/// Where machines reach it that join: only whoever listens on all addresses is reached by another.
pub fn joined_at(address: SocketAddr) -> String {
    let ip = if address.ip().is_unspecified() { advertised(address.ip()) } else { address.ip() };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// Where the clients of this machine reach a server that listens here.
pub fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        // A dual-stack socket: the older family is there too.
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        other => other,
    }
}

/// Where others reach it: the address of the way out of this machine, where it listens on all or on
/// the loopback alone. Connecting a datagram socket sends nothing.
pub fn advertised(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() && !listen.is_loopback() {
        return listen;
    }
    let way_out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Reserved for documentation: any address that is not local will do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    way_out().unwrap_or_else(|| reachable(listen))
}

/// What clients may call the server.
fn serving_names(listen: IpAddr, config: &server::Config, sans: &[String]) -> Result<(Vec<String>, Vec<IpAddr>)> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    addresses.extend([reachable(listen), config.advertise_address]);
    addresses.extend(config.service_cidrs.iter().filter_map(|(network, _)| first_address(*network)));
    for san in sans {
        match san.parse() {
            Ok(address) => addresses.push(address),
            Err(_) if is_dns_name(san) => names.push(san.clone()),
            Err(_) => return Err(Error::Flags(vec![format!("--tls-san: {san:?} is neither a name nor an address")])),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    names.dedup();
    Ok((names, addresses))
}

/// A name of DNS, where the first label may stand for all.
fn is_dns_name(name: &str) -> bool {
    api::validation::dns1123_subdomain(name.strip_prefix("*.").unwrap_or(name)).is_empty()
}

/// The address of the `kubernetes` service: the first of its range.
fn first_address(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V4(v4) => Some(IpAddr::from((u32::from(v4).checked_add(1)?).to_be_bytes())),
        IpAddr::V6(v6) => Some(IpAddr::from((u128::from(v6).checked_add(1)?).to_be_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(dir: &Path, listen: [u8; 4], sans: &[&str]) -> Result<Credentials> {
        let sans: Vec<String> = sans.iter().map(ToString::to_string).collect();
        let pki = Pki::open(dir.join("pki"))?;
        Own::new(pki, IpAddr::from(listen), &server::Config::default(), &sans)?.load()
    }

    #[test]
    fn certificates_come_back_and_follow_their_addresses() {
        let dir = tempfile::tempdir().expect("a directory");
        let make = |listen: [u8; 4], sans: &[&str]| own(dir.path(), listen, sans).expect("certificates");
        let (first, again) = (make([127, 0, 0, 1], &[]), make([127, 0, 0, 1], &[]));
        assert!(first == again);
        let (other, named) = (make([10, 1, 2, 3], &[]), make([10, 1, 2, 3], &["api.example", "10.9.8.7"]));
        assert_ne!(first.serving.certificate, other.serving.certificate);
        assert_ne!(named.serving.certificate, other.serving.certificate);
        assert!(first.admin == named.admin && first.clients == named.clients);
        let error = own(dir.path(), [127, 0, 0, 1], &["a b"]).err().expect("an error");
        assert!(error.describe().contains("--tls-san: \"a b\""), "{}", error.describe());
    }

    #[test]
    fn a_damaged_authority_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        own(dir.path(), [127, 0, 0, 1], &[]).expect("certificates");
        std::fs::remove_file(dir.path().join("pki/ca.key")).expect("a file");
        let error = own(dir.path(), [127, 0, 0, 1], &[]).err().expect("an error");
        assert!(error.describe().contains("pki/ca.key"), "{}", error.describe());
    }
}
