//! The kubelet of this machine: inside of `up`, as `kubelet` with upstream's flags and configuration, and as `pod_reporter` on
//! a machine that joins with a token; also the tokens.

pub mod bootstrap;
pub(crate) mod container_runtime;
pub mod flags;
pub mod host;
mod image_files;
pub mod join;
pub mod join_objects;
pub(crate) mod join_server;
pub mod options;
pub mod pod_network;
pub mod ports;
mod preflight;
pub mod request;
pub(crate) mod servers;
pub mod services;
pub mod serving;
mod settings;
pub mod start;
pub mod token;
mod tunnels;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::network::cni::builtin::Names;
use client::{Client, Random};
use kubelet::config::Settings;
use kubelet::pod::stop::StopObserver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::component::follow::FileFollower;
use crate::component::remote::Remote;
use crate::component::skew;
use crate::error::{Error, Result};
use crate::logs::{Format, Level};
use crate::machine::{identity, network};
use bootstrap::CertificateRotation;
use container_runtime::{BuiltinRuntime, RuntimeChoice};
use flags::Flags;
use join::JoinedNode;
use options::Options;
use servers::NodeServers;

/// The name of the component.
pub const NAME: &str = "kubelet";
/// The directory in which the built-in runtime of `kubelet` keeps images and containers.
const DATA_DIR: &str = "/var/lib/tiphys";

/// A running kubelet process.
pub struct KubeletProcess {
    kubelet: start::KubeletHandle,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// The servers of the cluster, if the kubelet reaches them through the local listener.
    servers: Option<NodeServers>,
}

impl KubeletProcess {
    /// Stops the pods because the machine shuts down; `stop` stops the kubelet.
    pub(crate) async fn shut_down(&self) {
        self.kubelet.shut_down().await;
    }

    /// Stops the pods when the machine shuts down, and continues if the shutdown is cancelled.
    pub(crate) async fn follow_machine(&mut self) {
        loop {
            match self.kubelet.machine_changed().await {
                true => self.kubelet.shut_down().await,
                false => self.kubelet.stay_up(),
            }
        }
    }

    /// Stops the kubelet and its pods; returns what could not be removed.
    pub(crate) async fn stop_with_pods(self) -> Vec<String> {
        let report = StopObserver {
            started: &|count| tracing::info!(count, "stopping pods"),
            stopped: &|stopped| match stopped.result {
                Ok(()) => tracing::info!(pod = stopped.pod, "stopped pod"),
                Err(error) => tracing::warn!(pod = stopped.pod, %error, "failed to stop pod"),
            },
        };
        let left = self.kubelet.stop_with_pods(&report).await;
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.servers.iter().for_each(NodeServers::stop);
        left
    }

    /// Stops the kubelet; its pods keep running.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.kubelet.stop().await;
        self.servers.iter().for_each(NodeServers::stop);
    }
}

/// The options of `kubelet`, and its log settings, which are applied first.
pub fn read(flags: &Flags) -> Result<(Options, Format, Level)> {
    let Settings { config, shown } = settings::read(flags)?;
    let format = if config.logs.json { Format::Json } else { Format::Text };
    let level = Level::of_verbosity(config.logs.verbosity);
    let runtime = match config.runtime_endpoint.clone() {
        Some(socket) => RuntimeChoice::Socket(socket),
        None => RuntimeChoice::Builtin(BuiltinRuntime {
            data_dir: DATA_DIR.into(),
            cgroup_root: config.cgroup_root.clone(),
            names: Names::default(),
            cluster: Default::default(),
        }),
    };
    Ok((
        Options {
            config,
            shown: Some(shown),
            configuration: Default::default(),
            runtime,
            is_shared: false,
            claim: None,
            services: services::Options::none(),
        },
        format,
        level,
    ))
}

/// Claims the names of the built-in pod network, which another cluster of this machine may have too.
fn claim_names(mut options: Options) -> Result<Options> {
    if let RuntimeChoice::Builtin(builtin) = &mut options.runtime {
        let data_dir = identity::open_data_dir(&builtin.data_dir)?;
        let claim = network::claim_names(&data_dir, Path::new(container_runtime::STATES))?;
        builtin.names = claim.network.names();
        options.claim = Some(claim);
    }
    options.name_tables();
    Ok(options)
}

/// Runs the kubelet of a machine that has joined, which balances over the servers of the cluster.
pub async fn run_joined(joined: JoinedNode) -> Result<KubeletProcess> {
    Box::pin(run_with(&joined.flags, joined.options, Some(joined.servers))).await
}

/// Runs the kubelet. Its client certificate comes first, since every request needs it.
pub async fn run(flags: &Flags, options: Options) -> Result<KubeletProcess> {
    Box::pin(run_with(flags, options, None)).await
}

async fn run_with(flags: &Flags, options: Options, mut servers: Option<NodeServers>) -> Result<KubeletProcess> {
    let config = &options.config;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Flags(vec!["running pods needs root".to_string()]));
    }
    host::check(config, Path::new("/"))?;
    host::prepare(config);
    let missing = || Error::Flags(vec![crate::component::flags::NO_KUBECONFIG.to_string()]);
    let kubeconfig: PathBuf = flags.kubeconfig.clone().ok_or_else(missing)?;
    let dir = config.certificates.dir.clone().unwrap_or_else(|| config.root_dir.join("pki"));
    let (node, rotates) = (config.node_name.clone(), config.certificates.rotate);
    bootstrap::ensure(&kubeconfig, flags.bootstrap_kubeconfig.as_deref(), &dir, &node).await?;
    let remote = Remote::read(NAME, "kubeconfig", &kubeconfig)?.limited(config.requests.limit);
    let mut follow = FileFollower::default();
    remote.follow("kubeconfig", &kubeconfig, &mut follow);
    let (stop, stopped) = watch::channel(false);
    let client: Client = remote.client();
    skew::check_server(&client, NAME, skew::NODE_VERSIONS).await?;
    let random = Arc::new(Random::seeded(Random::fresh_seed()));
    let mut tasks = vec![tokio::spawn(follow.run(stopped))];
    if rotates {
        tasks.push(tokio::spawn(CertificateRotation::client(&dir, &node, client.clone(), random).run()));
    }
    if let Some(servers) = &mut servers {
        servers.follow(&client).await;
    }
    let (name, port, listens) = (config.node_name.clone(), config.port, config.serving.address);
    let mut kubelet = start::start(client.clone(), claim_names(options)?).await?;
    kubelet.inhibit();
    if let Some(servers) = &servers {
        tasks.push(tunnels::start(servers, client, &name, SocketAddr::new(listens, port)));
    }
    Ok(KubeletProcess { kubelet, stop, tasks, servers })
}
