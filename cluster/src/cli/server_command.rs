//! `tiphys server`: a server of a control plane, without workload unless `--agent` is set. Several servers share one
//! etcd: the first creates the certificates, the others join it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use stdx::cidr::IpNet;

use super::instance::InstanceArguments;
use super::session::Session;
use super::{interrupted, runtime};
use crate::control_plane::Pods;
use crate::error::{Error, Result};
use crate::logs::{self, Format, Level};
use crate::machine::lock::{Lock, lock_data_dir};
use crate::machine::network::{self, Claim, ClusterNetwork, Requested};
use crate::machine::preflight::{self, Role};
use crate::machine::run_state::RunState;
use crate::node::container_runtime::STATES;
use crate::node::join_server::{self, ServerJoin};
use crate::node::options;
use crate::node::pod_network::{self, NetworkBackend, PodNetwork};
use crate::node::services::Component;
use crate::pki::bundle::{ServerSettings, StoreSettings};
use crate::up::arguments::ComponentArguments;
use crate::up::{self, Up};

#[derive(clap::Args)]
pub(crate) struct ServerArguments {
    /// A file with settings: the names of flags, and their values; `tiphys config explain` lists them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the server
    #[arg(long, default_value = "/var/lib/tiphys/server")]
    data_dir: PathBuf,
    /// The address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// The port of the API server
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address at which other machines reach this server [default: --bind-address, or that of the default route]
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    /// An additional name or address of the serving certificate; can be repeated
    #[arg(long = "tls-san", value_delimiter = ',')]
    tls_sans: Vec<String>,
    /// Join the control plane of this server: https://HOST:PORT
    #[arg(long, value_name = "URL", default_value = "")]
    server: String,
    /// The token to join with; not needed again once the server has joined
    #[arg(long, default_value = "")]
    token: String,
    /// A file with the token, which other users of the machine cannot read as they can read arguments
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The hash of the cluster CA's public key: `sha256:` and hexadecimal digits
    #[arg(long, value_name = "HASH", default_value = "")]
    discovery_token_ca_cert_hash: String,
    /// The key with which the certificates of the control plane are encrypted for this server
    #[arg(long, value_name = "KEY", default_value = "")]
    certificate_key: String,
    /// A file with that key
    #[arg(long, value_name = "FILE", conflicts_with = "certificate_key")]
    certificate_key_file: Option<PathBuf>,
    /// The URLs of etcd, which several servers can share [default: the embedded store of this machine]
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// CA bundle for etcd's certificates
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "")]
    etcd_prefix: String,
    /// The controllers to run: `*` for all, a name for one, `-name` for all but that one
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = up::CONTROLLERS)]
    controllers: Vec<String>,
    /// Do not run the scheduler, for clusters with another one
    #[arg(long)]
    disable_scheduler: bool,
    /// The range of pod addresses, or one of each family [default: 10.42.0.0/16, or that of the joined cluster]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// The range of service addresses, or one of each family [default: 10.96.0.0/16, or that of the joined cluster]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    service_cidr: Vec<IpNet>,
    /// How packets get to the pods of other nodes
    #[arg(long, value_enum, default_value_t)]
    network_backend: NetworkBackend,
    /// Run a kubelet too: this machine becomes a node
    #[arg(long)]
    agent: bool,
    /// The address of this machine's node [default: --advertise-address]
    #[arg(long, value_name = "IP", requires = "agent")]
    node_ip: Option<IpAddr>,
    /// Stop the pods of this machine when the server stops; otherwise they keep running
    #[arg(long, requires = "agent")]
    stop_pods: bool,
    #[command(flatten)]
    kubelet: options::Arguments,
    #[command(flatten)]
    components: ComponentArguments,
    /// Where to write the kubeconfig of the administrator [default: DATA_DIR/kubeconfig]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The format of the log on standard error
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// The level of the log
    #[arg(long, value_enum, default_value_t = Level::Info)]
    log_level: Level,
}

pub(super) fn run(args: ServerArguments) -> Result<()> {
    let began = Instant::now();
    check(&args)?;
    let data_dir = preflight::open_data_dir(&args.data_dir, Role::Server)?;
    let lock = lock_data_dir(&data_dir)?;
    RunState::remove(&data_dir);
    logs::init_in(args.log_format, args.log_level, &data_dir, true)?;
    if let Some(file) = &args.config {
        tracing::info!(file = %file.display(), "using configuration file");
    }
    preflight::log_warnings(&data_dir);
    if args.agent {
        preflight::check_kernel()?;
    }
    let instance = InstanceArguments::of(args.data_dir.clone());
    let session = Session::open(&instance, &data_dir, args.kubeconfig.clone(), false, false)?;
    let runtime = runtime()?;
    let stops_pods = args.stop_pods;
    let result = runtime.block_on(async {
        let joined = tokio::select! {
            biased;
            () = interrupted() => return Ok(()),
            joined = join(&args, &data_dir) => joined?,
        };
        let options = options(args, &data_dir, lock, &session, joined)?;
        let starting = Box::pin(up::up(options, &|step| tracing::info!(step, "starting")));
        let running = tokio::select! {
            biased;
            () = interrupted() => return Ok(()),
            started = starting => started?.control_plane,
        };
        session.write_state(running.address, began.elapsed())?;
        interrupted().await;
        tracing::info!("stopping");
        let report = kubelet::pod::stop::StopObserver { started: &|_| {}, stopped: &|_| {} };
        let pods = if stops_pods { Pods::Stop(&report) } else { Pods::Keep };
        tokio::select! {
            left = running.stop_with(pods) => left.iter().for_each(|why| tracing::warn!("{why}")),
            () = interrupted() => tracing::warn!("stopped without draining open requests"),
        }
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Flags that contradict each other.
fn check(args: &ServerArguments) -> Result<()> {
    let mut errors = Vec::new();
    if !args.agent && !args.components.kubelet.is_empty() {
        errors.push("--kubelet-arg: there is no kubelet without --agent".to_string());
    }
    if args.agent && !options::can_run_pods() {
        errors.push("--agent: running pods needs root".to_string());
    }
    let joins = args.token_file.is_some() || !args.token.is_empty();
    if args.server.is_empty() && joins {
        errors.push("--token: --server names the server to join".to_string());
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

/// The settings that this server has kept, or that the joined control plane has; whether it has joined one.
struct Joined {
    settings: ServerSettings,
    has_joined: bool,
}

async fn join(args: &ServerArguments, data_dir: &Path) -> Result<Joined> {
    if let Some(settings) = ServerSettings::read(data_dir)? {
        return Ok(Joined { settings, has_joined: !args.server.is_empty() });
    }
    if args.server.is_empty() {
        return Ok(Joined { settings: ServerSettings::default(), has_joined: false });
    }
    let secret = |text: &str, file: Option<&PathBuf>| match file {
        Some(file) => Ok(std::fs::read_to_string(file).map_err(Error::file(file))?.trim().to_string()),
        None => Ok::<_, Error>(text.to_string()),
    };
    let token = secret(&args.token, args.token_file.as_ref())?;
    let certificate_key = secret(&args.certificate_key, args.certificate_key_file.as_ref())?;
    if token.is_empty() {
        return Err(Error::Flags(vec!["--token: this server has not joined yet; a token is required".to_string()]));
    }
    let request = ServerJoin {
        server: &args.server,
        token: &token,
        ca_hash: &args.discovery_token_ca_cert_hash,
        certificate_key: &certificate_key,
    };
    join_server::join(&request, data_dir).await?;
    let settings = ServerSettings::read(data_dir)?.unwrap_or_default();
    Ok(Joined { settings, has_joined: true })
}

fn options(args: ServerArguments, data_dir: &Path, lock: Lock, session: &Session, joined: Joined) -> Result<Up> {
    let Joined { settings, has_joined } = joined;
    let store = store(&args, settings.store);
    let listen = SocketAddr::new(args.bind_address, args.port);
    let requested = Requested {
        pod_cidrs: ranges(args.cluster_cidr, &settings.pod_cidrs),
        service_cidrs: ranges(args.service_cidr, &settings.service_cidrs),
    };
    let (network, claim) = claim(args.agent, data_dir, &requested)?;
    let text = |ranges: &[IpNet]| ranges.iter().map(ToString::to_string).collect();
    let kept = ServerSettings {
        store: store.clone(),
        pod_cidrs: text(&network.pod_cidrs),
        service_cidrs: text(&network.service_cidrs),
    };
    kept.write(data_dir)?;
    let mut apiserver = args.components.apiserver(data_dir, listen)?;
    apiserver.advertise_address = args.advertise_address.or(apiserver.advertise_address);
    // The first server decides about the network of the cluster.
    let own_network = (!has_joined).then(|| pod_network::configuration(&network, args.network_backend));
    let between = own_network.clone().map_or(PodNetwork::OfCluster, PodNetwork::Config);
    let kubelet = args.components.kubelet()?;
    let nodes_serve_dns = !args.kubelet.disable.contains(&Component::Dns);
    let mut agent = match args.agent {
        true => {
            options::Options::of(args.kubelet, &kubelet, data_dir, args.bind_address, claim, between)?.map(Box::new)
        }
        false => None,
    };
    if let (Some(agent), Some(node_ip)) = (&mut agent, args.node_ip.or(args.advertise_address)) {
        agent.config.node_ips = vec![node_ip];
    }
    apiserver.etcd_servers = store.etcd_servers;
    apiserver.etcd_prefix = store.etcd_prefix;
    (apiserver.etcd_ca_file, apiserver.etcd_cert_file, apiserver.etcd_key_file) =
        (store.etcd_ca_file, store.etcd_cert_file, store.etcd_key_file);
    Ok(Up {
        data_dir: data_dir.to_path_buf(),
        lock: Some(lock),
        listen,
        kubeconfig: session.kubeconfigs.clone(),
        tls_sans: args.tls_sans,
        controllers: args.controllers,
        manager: args.components.manager()?,
        scheduler: (!args.disable_scheduler).then(|| args.components.scheduler()).transpose()?,
        fake_nodes: 0,
        agent,
        apiserver,
        network,
        pod_network: own_network,
        nodes_serve_dns,
        hosts: None,
    })
}

/// Flags replace what an earlier start, or the joined control plane, has set.
fn store(args: &ServerArguments, kept: StoreSettings) -> StoreSettings {
    if args.etcd_servers.is_empty() {
        return kept;
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let prefix = args.etcd_prefix.trim_matches('/');
    StoreSettings {
        etcd_servers: args.etcd_servers.clone(),
        etcd_prefix: format!("/{}", if prefix.is_empty() { "registry" } else { prefix }),
        etcd_ca_file: args.etcd_cafile.as_ref().map(absolute),
        etcd_cert_file: args.etcd_certfile.as_ref().map(absolute),
        etcd_key_file: args.etcd_keyfile.as_ref().map(absolute),
    }
}

fn ranges(given: Vec<IpNet>, kept: &[String]) -> Vec<IpNet> {
    match given.is_empty() {
        true => kept.iter().filter_map(|range| range.parse().ok()).collect(),
        false => given,
    }
}

fn claim(is_node: bool, data_dir: &Path, requested: &Requested) -> Result<(ClusterNetwork, Option<Claim>)> {
    match is_node {
        true => {
            let claim = network::claim(data_dir, Path::new(STATES), requested)?;
            Ok((claim.network.clone(), Some(claim)))
        }
        false => Ok((network::open(data_dir, requested)?, None)),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn arguments(words: &[&str]) -> ServerArguments {
        let command = ServerArguments::augment_args(clap::Command::new("server"));
        let matches = command.try_get_matches_from(["server"].iter().chain(words)).expect("arguments");
        ServerArguments::from_arg_matches(&matches).expect("arguments")
    }

    #[test]
    fn flags_replace_kept_settings() {
        let kept = || StoreSettings { etcd_servers: vec!["http://kept".to_string()], ..StoreSettings::default() };
        assert_eq!(store(&arguments(&[]), kept()), kept());
        let named = store(&arguments(&["--etcd-servers", "http://a,http://b", "--etcd-prefix", "x/"]), kept());
        assert_eq!(named.etcd_servers, ["http://a", "http://b"]);
        assert_eq!(named.etcd_prefix, "/x");
        let range = |text: &str| text.parse::<IpNet>().expect("a range");
        assert_eq!(ranges(Vec::new(), &["10.1.0.0/16".to_string()]), [range("10.1.0.0/16")]);
        assert_eq!(ranges(vec![range("10.2.0.0/16")], &["10.1.0.0/16".to_string()]), [range("10.2.0.0/16")]);
    }

    #[test]
    fn rejects_flags_without_effect() {
        let why = |words: &[&str]| check(&arguments(words)).err().map(|error| error.describe()).unwrap_or_default();
        assert_eq!(why(&[]), "");
        assert!(why(&["--token", "abcdef.0123456789abcdef"]).contains("--server names the server"));
        assert!(why(&["--kubelet-arg", "max-pods=7"]).contains("there is no kubelet without --agent"));
    }
}
