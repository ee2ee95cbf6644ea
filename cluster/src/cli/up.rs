//! `tiphys up` in the foreground: its arguments, its output, and how it stops.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ::network::cidr::IpNet;
use kubelet::pod::stop::{StopObserver, StopResult};
use stdx::sync::Mutex;

use super::detach;
use super::instance::InstanceArguments;
use super::ready::{PodSupport, Ready};
use super::session::Session;
use super::{interrupted, runtime, say};
use crate::control_plane::{ControlPlane, Pods};
use crate::error::{Error, Result};
use crate::logs::{self, Format, Level};
use crate::machine::lock::{Lock, lock_data_dir};
use crate::machine::network::{self, Claim, ClusterNetwork, Requested};
use crate::machine::preflight::{self, Role};
use crate::machine::run_state::RunState;
use crate::node::container_runtime::STATES;
use crate::node::options;
use crate::node::pod_network::{self, NetworkBackend, PodNetwork};
use crate::node::services::Component;
use crate::snapshots::Settings;
use crate::up::arguments::ComponentArguments;
use crate::up::hosts::{MAX_NODES, NodeLink};
use crate::up::nodes::RunningHosts;
use crate::up::servers::check_data_dir;
use crate::up::{self, SimulatedNodes, Up};

#[derive(clap::Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(super) instance: InstanceArguments,
    /// A file with settings: the names of flags, and their values; `tiphys config explain` lists them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run the cluster in the background, and exit when it is ready; `tiphys down` stops it
    #[arg(long, short)]
    detach: bool,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(super) bind_address: IpAddr,
    /// The port of the API server
    #[arg(long, default_value_t = 6443)]
    pub(super) port: u16,
    /// An additional name or address of the serving certificate; can be repeated
    #[arg(long = "tls-san", value_delimiter = ',')]
    pub(super) tls_sans: Vec<String>,
    /// The controllers to run: `*` for all, a name for one, `-name` for all but that one
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = up::CONTROLLERS)]
    pub(super) controllers: Vec<String>,
    /// Do not run the scheduler, for clusters with another one
    #[arg(long)]
    pub(super) disable_scheduler: bool,
    /// The range of pod addresses, or one of each family [default: a free one, 10.42.0.0/16 first; kept in the data
    /// directory]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(super) cluster_cidr: Vec<IpNet>,
    /// The range of service addresses, or one of each family [default: a free one, 10.96.0.0/16 first; kept in the
    /// data directory]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(super) service_cidr: Vec<IpNet>,
    /// How packets get to the pods of nodes that join
    #[arg(long, value_enum, default_value_t)]
    pub(super) network_backend: NetworkBackend,
    /// The number of nodes: this machine, and simulated hosts with their own network, processes and file systems that
    /// join it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) nodes: u32,
    /// The number of servers. With several, all nodes are simulated hosts; the first of them are servers too and share an
    /// etcd cluster of three members, so that the cluster survives the loss of a server or of a member
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) servers: u32,
    /// The etcd of --servers [default: that of $PATH]
    #[arg(long, value_name = "FILE")]
    pub(super) etcd_binary: Option<PathBuf>,
    /// Add fake nodes that simulate pods: pods become ready, Jobs complete, deletions finish
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) fake_nodes: u32,
    /// Do not run the kubelet: this machine does not become a node
    #[arg(long)]
    pub(super) disable_agent: bool,
    /// Keep pods running when this command stops; the next `up` takes them over
    #[arg(long)]
    pub(super) keep_pods: bool,
    #[command(flatten)]
    pub(super) agent: options::Arguments,
    #[command(flatten)]
    pub(super) snapshots: Settings,
    #[command(flatten)]
    pub(super) components: ComponentArguments,
    /// Where to write the kubeconfig [default: DATA_DIR/kubeconfig]
    #[arg(long)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Also write a context for the cluster to $KUBECONFIG or ~/.kube/config, and select it
    #[arg(long)]
    pub(super) merge_kubeconfig: bool,
    /// The format of the log on standard error, and in DATA_DIR/logs
    #[arg(long, value_enum, default_value_t)]
    pub(super) log_format: Format,
    /// The level of the log
    #[arg(long, value_enum, default_value_t = Level::Warn)]
    pub(super) log_level: Level,
}

pub(super) fn run(args: UpArguments) -> Result<()> {
    let data_dir = preflight::open_data_dir(&args.instance.data_dir()?, Role::Server)?;
    let detached = detach::is_background();
    if args.detach && !detached {
        // This process would report it only after the start.
        drop(lock_data_dir(&data_dir)?);
        return detach::run(&data_dir, std::env::args_os().skip(1));
    }
    if detached {
        detach::leave_session();
    }
    // Before anything else: a second start on the same directory gets this error and no other.
    let lock = lock_data_dir(&data_dir)?;
    RunState::remove(&data_dir);
    // In the background, standard error is the same file.
    logs::init_in(args.log_format, args.log_level, &data_dir, !detached)?;
    preflight::log_warnings(&data_dir);
    if let Some(file) = &args.config {
        tracing::info!(file = %file.display(), "using configuration file");
    }
    check_servers(&args, &data_dir)?;
    let (kubeconfig, merges) = (args.kubeconfig.clone(), args.merge_kubeconfig);
    let session = Session::open(&args.instance, &data_dir, kubeconfig, merges, detached)?;
    if args.servers > 1 {
        return super::up_servers::run(args, &data_dir, &session);
    }
    let (pods, keeps_pods) = (pod_support(&args), args.keep_pods);
    if pods == PodSupport::Run {
        preflight::check_kernel().map_err(Error::suggest_disable_agent)?;
    }
    let options = up_options(args, &data_dir, lock, &session, pods)?;
    let runtime = runtime()?;
    let result = runtime.block_on(run_cluster(options, &session, pods, keeps_pods));
    // After a second signal, tasks that still wait for a pod are not awaited.
    runtime.shutdown_background();
    result
}

/// Whether this machine runs pods, and why not.
fn pod_support(args: &UpArguments) -> PodSupport {
    match (args.disable_agent, options::can_run_pods()) {
        (false, true) => PodSupport::Run,
        (false, false) => PodSupport::NeedRoot { fake_nodes: args.fake_nodes > 0 },
        (true, _) => PodSupport::Off { fake_nodes: args.fake_nodes > 0 },
    }
}

/// The options of the cluster: the flags, on this machine's network.
fn up_options(args: UpArguments, data_dir: &Path, lock: Lock, session: &Session, pods: PodSupport) -> Result<Up> {
    if args.disable_agent && !args.components.kubelet.is_empty() {
        return Err(Error::Flags(vec!["--kubelet-arg: there is no kubelet with --disable-agent".to_string()]));
    }
    let (network, claim) = open_network(&args, data_dir, pods)?;
    let listen = SocketAddr::new(args.bind_address, args.port);
    let link = create_link(&args, data_dir, &network, pods)?;
    let disable = args.agent.disable.iter().filter_map(value_name).collect();
    // Other machines cannot join a server that listens on the loopback interface only.
    let pod_network = (link.is_some() || !args.bind_address.is_loopback())
        .then(|| pod_network::configuration(&network, args.network_backend));
    let manager = args.components.manager()?;
    let scheduler = (!args.disable_scheduler).then(|| args.components.scheduler()).transpose()?;
    let nodes_serve_dns = !args.agent.disable.contains(&Component::Dns);
    let mut agent = match args.disable_agent {
        true => None,
        false => {
            let kubelet = args.components.kubelet()?;
            let between = pod_network.clone().map_or(PodNetwork::Disabled, PodNetwork::Config);
            options::Options::of(args.agent, &kubelet, data_dir, args.bind_address, claim, between)?.map(Box::new)
        }
    };
    let mut apiserver = args.components.apiserver(data_dir, listen)?;
    apiserver.snapshots = args.snapshots;
    let hosts = agent.as_mut().zip(link).map(|(agent, link)| {
        agent.join_link(link.addresses());
        let kubelet_config = agent.configuration.clone();
        (SimulatedNodes { nodes: args.nodes, kubelet_config, disable, log_level: args.log_level }, link)
    });
    Ok(Up {
        data_dir: data_dir.to_path_buf(),
        lock: Some(lock),
        listen,
        kubeconfig: session.kubeconfigs.clone(),
        tls_sans: args.tls_sans,
        controllers: args.controllers,
        manager,
        scheduler,
        fake_nodes: args.fake_nodes,
        nodes_serve_dns,
        agent,
        apiserver,
        network,
        pod_network,
        hosts,
    })
}

/// The ranges of the cluster, which are claimed on this machine if it runs pods.
fn open_network(args: &UpArguments, data_dir: &Path, pods: PodSupport) -> Result<(ClusterNetwork, Option<Claim>)> {
    let requested = Requested { pod_cidrs: args.cluster_cidr.clone(), service_cidrs: args.service_cidr.clone() };
    if !matches!(pods, PodSupport::Run) {
        return Ok((network::open(data_dir, &requested)?, None));
    }
    let claim = network::claim(data_dir, Path::new(STATES), &requested)?;
    Ok((claim.network.clone(), Some(claim)))
}

/// The link to the simulated hosts of further nodes; None without them.
fn create_link(
    args: &UpArguments,
    data_dir: &Path,
    network: &ClusterNetwork,
    pods: PodSupport,
) -> Result<Option<NodeLink>> {
    if args.nodes == 1 {
        return Ok(None);
    }
    check_nodes(args.nodes, pods, &args.agent)?;
    let cgroup_root = args.agent.cgroup_root.as_deref().unwrap_or_default();
    Ok(Some(NodeLink::create(data_dir, network, cgroup_root, 0)?))
}

/// Starts the cluster, reports the progress, and runs it until the first signal.
async fn run_cluster(options: Up, session: &Session, pods: PodSupport, keeps_pods: bool) -> Result<()> {
    let (data_dir, network) = (options.data_dir.clone(), options.network.clone());
    let steps = Steps::new();
    let left_link = options.hosts.as_ref().map(|(_, link)| link.clone());
    let progress = |step: &str| steps.begin(step);
    let starting = Box::pin(up::up(options, &progress));
    let running = tokio::select! {
        biased;
        () = interrupted() => {
            left_link.iter().flat_map(NodeLink::remove).for_each(|why| say(&format!("  ✗ {why}")));
            return Ok(());
        }
        started = starting => started.inspect_err(|_| steps.fail())?,
    };
    steps.end();
    session.show(&Ready {
        took: steps.started.elapsed(),
        address: running.control_plane.address,
        session,
        data_dir: &data_dir,
        pods,
        network: &network,
    })?;
    interrupted().await;
    if let Some(hosts) = running.hosts {
        stop_hosts(hosts).await;
    }
    stop(running.control_plane, keeps_pods, &data_dir).await;
    Ok(())
}

/// Stops the simulated hosts with their pods; a second signal removes their link at once.
async fn stop_hosts(hosts: RunningHosts) {
    say("\nstopping the nodes and their pods; press ctrl-c again to stop immediately");
    let link = hosts.link().clone();
    let left = tokio::select! {
        biased;
        () = interrupted() => link.remove(),
        left = hosts.stop() => left,
    };
    left.iter().for_each(|why| say(&format!("  ✗ {why}")));
}

/// Why the cluster of a data directory cannot have this number of servers.
fn check_servers(args: &UpArguments, data_dir: &Path) -> Result<()> {
    if args.servers == 0 {
        return Err(Error::Flags(vec!["--servers: must be at least 1".to_string()]));
    }
    if args.servers == 1 && args.etcd_binary.is_some() {
        return Err(Error::Flags(vec!["--etcd-binary: one server has the embedded store; see --servers".to_string()]));
    }
    check_data_dir(data_dir, args.servers)
}

/// Why there cannot be several nodes.
pub(super) fn check_nodes(nodes: u32, pods: PodSupport, agent: &options::Arguments) -> Result<()> {
    let why = match pods {
        _ if !(1..=MAX_NODES).contains(&nodes) => format!("must be between 1 and {MAX_NODES}"),
        PodSupport::NeedRoot { .. } => "simulated hosts need root".to_string(),
        PodSupport::Off { .. } => "with --disable-agent there are no nodes".to_string(),
        PodSupport::Run if agent.container_runtime_endpoint.is_some() => {
            "simulated hosts have the built-in runtime: --container-runtime-endpoint cannot be used".to_string()
        }
        PodSupport::Run => return Ok(()),
    };
    Err(Error::Flags(vec![format!("--nodes: {why}")]))
}

/// The name of a value on the command line.
pub(super) fn value_name<V: clap::ValueEnum>(value: &V) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_string())
}

/// Stops the cluster and its pods; a second signal stops it at once.
async fn stop(running: ControlPlane, keeps_pods: bool, data_dir: &Path) {
    let reset = format!("tiphys reset --data-dir {}", data_dir.display());
    let is_node = running.is_node();
    let report = StopObserver {
        started: &|count| {
            if count > 0 {
                say(&format!("\nstopping {count} pods; press ctrl-c again to stop immediately"));
            }
        },
        stopped: &say_stopped,
    };
    let pods = if keeps_pods { Pods::Keep } else { Pods::Stop(&report) };
    let left = tokio::select! {
        biased;
        () = interrupted() => {
            say(&format!("\nstopped immediately: pods may still run until the next `tiphys up` or `{reset}`"));
            return;
        }
        left = running.stop_with(pods) => left,
    };
    left.iter().for_each(|why| say(&format!("  ✗ {why}")));
    match (is_node && keeps_pods, left.is_empty()) {
        (true, _) => say(&format!(
            "stopped; its pods keep running: the next `tiphys up` takes them over, `{reset}` removes them"
        )),
        (false, true) => say("stopped"),
        (false, false) => say(&format!("stopped; not all of its pods could be removed: run `{reset}` to retry")),
    }
}

fn say_stopped(stopped: StopResult) {
    let StopResult { pod, took, result } = stopped;
    match result {
        Ok(()) => say(&format!("  ✓ {pod} ({} ms)", took.as_millis())),
        Err(why) => say(&format!("  ✗ {pod}: {why}")),
    }
}

/// Progress of the start: a terminal shows the current step, other outputs each step when it is done.
pub(super) struct Steps {
    pub(super) started: Instant,
    current: Mutex<Option<(String, Instant)>>,
    terminal: bool,
}

impl Steps {
    pub(super) fn new() -> Steps {
        Steps { started: Instant::now(), current: Mutex::new(None), terminal: std::io::stdout().is_terminal() }
    }

    pub(super) fn begin(&self, step: &str) {
        self.end();
        if self.terminal {
            print!("  … {step}");
            let _ = std::io::stdout().flush();
        }
        *self.current.lock() = Some((step.to_string(), Instant::now()));
    }

    pub(super) fn end(&self) {
        let current = self.current.lock().take();
        let Some((step, since)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✓ {step} ({} ms)", since.elapsed().as_millis()));
    }

    pub(super) fn fail(&self) {
        let current = self.current.lock().take();
        let Some((step, _)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✗ {step}"));
    }
}
