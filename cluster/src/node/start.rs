//! The kubelet of this machine in this process: its node object, its pods, its ports and its serving certificate.

use std::sync::Arc;

use client::{Client, Metrics, Random};
use kubelet::Config;
use kubelet::config::Shutdown;
use kubelet::node::{self, Node};
use kubelet::server::{KubeletHost, KubeletServer, Settings as ServerSettings};
use kubelet::shutdown;
use kubelet::shutdown::inhibit::{Inhibitor, Paths};
use server::tls::Serving;
use stdx::clock::{Clock, SystemClock};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::container_runtime::{OpenRuntime, RuntimeChoice, open};
use super::options::Options;
use super::ports::{self, Access, Listeners};
use super::services;
use crate::component::follow::FileFollower;
use crate::error::{Error, Result};
use crate::machine::host_state::HostState;
use crate::machine::identity;
use crate::machine::network::Claim;

/// The running kubelet of this machine.
pub struct KubeletHandle {
    agent: kubelet::Kubelet,
    object: Arc<Node>,
    shutdown: Shutdown,
    /// Delays the shutdown of the machine until pods have stopped.
    inhibitor: Option<Inhibitor>,
    /// The node's own object, and its certificate.
    tasks: Vec<JoinHandle<()>>,
    /// Stops the ports.
    stop: watch::Sender<bool>,
    opened: OpenRuntime,
    host_state: HostState,
    /// Held until the end: another cluster may use the network afterwards.
    claim: Option<Claim>,
    /// The DNS and the service proxy.
    services: services::NodeServices,
}

impl KubeletHandle {
    /// Stops the pods because the machine shuts down, then lets it shut down.
    pub(crate) async fn shut_down(&self) {
        shutdown::run(&self.object, &self.agent, &self.shutdown).await;
        self.inhibitor.iter().for_each(Inhibitor::release);
    }

    /// The machine stays up after all.
    pub(crate) fn stay_up(&self) {
        shutdown::cancel(&self.object);
    }

    /// Waits until the machine starts or cancels a shutdown; true if it shuts down.
    pub(crate) async fn machine_changed(&mut self) -> bool {
        match &mut self.inhibitor {
            Some(inhibitor) => inhibitor.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Delays shutdowns of the machine, if a grace period is configured.
    pub(crate) fn inhibit(&mut self) {
        let period = shutdown::whole(&self.shutdown);
        if !period.is_zero() {
            self.inhibitor = Some(Inhibitor::start(Paths::of_machine(), period));
        }
    }

    /// Stops the kubelet; its pods keep running.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.agent.stop().await;
        self.services.stop().await;
        if let Some(claim) = self.claim {
            claim.keep_for_pods();
        }
    }

    /// Stops the kubelet and its pods, and removes their host state; returns what could not be removed.
    pub(crate) async fn stop_with_pods(self, report: &kubelet::pod::stop::StopObserver<'_>) -> Vec<String> {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.agent.stop_with_pods(report).await;
        let left = self.opened.remove_pods().await.err().map(|error| error.to_string());
        self.services.stop().await;
        let (host_state, state) = (self.host_state, self.opened.close());
        let removed = tokio::task::spawn_blocking(move || host_state.remove(state.as_deref())).await;
        drop(self.claim);
        left.into_iter().chain(removed.unwrap_or_default()).collect()
    }
}

/// Starts the kubelet. `client` acts as the node.
pub async fn start(client: Client, options: Options) -> Result<KubeletHandle> {
    let place = match &options.runtime {
        RuntimeChoice::Socket(socket) => format!("--container-runtime-endpoint {}: ", socket.display()),
        RuntimeChoice::Builtin(_) => String::new(),
    };
    let (mut config, mut choice) = (options.config, options.runtime);
    let proxy_table = options.services.proxy.as_ref().map(|proxy| proxy.table.clone());
    let policy_table = options.services.policy_table.clone();
    // Before the first pod, which may need both.
    let services = services::start(&client, options.services, &mut choice, &mut config).await?;
    let tables = (proxy_table, policy_table);
    let host_state = host_state(&config, &choice, options.claim.as_ref(), &services, tables);
    for collision in options.claim.iter().flat_map(|claim| &claim.collisions) {
        tracing::warn!("{collision}; what is there cannot be reached from this machine or from its pods");
    }
    if let RuntimeChoice::Builtin(embedded) = &choice {
        host_state.write(&identity::open_data_dir(&embedded.data_dir)?)?;
    }
    if let RuntimeChoice::Builtin(builtin) = &choice {
        builtin.import_images().await?;
    }
    let opened = open(choice).await?;
    let mut runtime = opened.runtime.clone();
    if let Some(socket) = &config.image_endpoint {
        runtime.images = Arc::new(cri::connect(socket).1);
    }
    let listeners = Listeners::bind(&config, options.is_shared).await?;
    config.port = listeners.secure().map_or(0, |address| address.port());
    let config = Arc::new(config);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::default();
    let seed = Random::fresh_seed();
    let events = client::Events::start(clock.clone(), metrics.clone());
    let node = Node::new(node::Environment {
        config: config.clone(),
        client: client.clone(),
        runtime: runtime.service.clone(),
        images: runtime.images.clone(),
        clock: clock.clone(),
        recorder: events.recorder(client.clone(), "kubelet").on(&config.node_name),
        random: Arc::new(Random::seeded(seed)),
    });
    let (object, shutdown) = (node.clone(), config.shutdown.clone());
    node.update_reports(|reports| reports.declared_features.push(server::outbound::kubelets::WEBSOCKETS.to_string()));
    let environment = kubelet::Environment {
        client: client.clone(),
        runtime,
        node: node.clone(),
        config: config.clone(),
        clock,
        metrics: metrics.clone(),
        network_gate: services.network_gate(),
        seed,
    };
    let agent = kubelet::start(environment).await.map_err(|why| Error::Node(format!("{place}{why}")))?;
    let (stop, serving) = serve_ports(listeners, (&config, options.shown), &client, &agent, metrics)?;
    let mut tasks = vec![tokio::spawn(node.run())];
    if config.certificates.server_bootstrap {
        let rotated = super::serving::rotated(&config, &client, serving, object.object());
        tasks.push(tokio::spawn(rotated.run()));
    }
    let claim = options.claim;
    Ok(KubeletHandle { agent, object, shutdown, inhibitor: None, tasks, stop, opened, host_state, claim, services })
}

/// What this node creates on the machine, for its removal.
fn host_state(
    config: &Config,
    choice: &RuntimeChoice,
    claim: Option<&Claim>,
    services: &services::NodeServices,
    (proxy_table, policy_table): (Option<String>, Option<String>),
) -> HostState {
    let api_server = claim.and_then(|claim| claim.network.api_server_address());
    HostState {
        root_dir: config.root_dir.clone(),
        pod_logs_dir: config.pod_logs_dir.clone(),
        cgroup_root: config.cgroup_root.clone(),
        runtime_endpoint: match choice {
            RuntimeChoice::Socket(socket) => Some(socket.clone()),
            RuntimeChoice::Builtin(_) => None,
        },
        pod_network: claim.filter(|_| choice.uses_builtin_network()).map(|claim| claim.network.names()),
        addresses: api_server.into_iter().chain(services.dns_address).collect(),
        proxy_table,
        policy_table,
        pod_ranges: services.pod_ranges.clone(),
    }
}

/// Serves the kubelet's ports.
fn serve_ports(
    listeners: Listeners,
    (config, shown): (&Config, Option<api::Tree>),
    client: &Client,
    agent: &kubelet::Kubelet,
    metrics: Metrics,
) -> Result<(watch::Sender<bool>, Arc<Serving>)> {
    let defaults = || kubelet::config::read(&api::tree! {}, &Default::default()).map(|settings| settings.shown);
    let shown = shown.map_or_else(defaults, Ok).map_err(Error::Flags)?;
    let host = Arc::new(KubeletHost::new(agent, metrics, shown));
    let answers = Arc::new(KubeletServer::new(host, ServerSettings::of(config)));
    let address = config.node_ips.first().copied().unwrap_or(config.serving.address);
    let serving = ports::serving(config, address)?;
    let (stop, stopped) = watch::channel(false);
    let mut follow = FileFollower::default();
    ports::follow_serving(config, &serving, &mut follow);
    ports::serve(listeners, serving.clone(), Access::of(config, client), answers, &stopped, &mut follow)?;
    tokio::spawn(follow.run(stopped));
    Ok((stop, serving))
}
