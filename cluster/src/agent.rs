//! The node agent of this machine inside `up`: the embedded runtime, or another by its socket, and the agent on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Clock, Metrics, Random, SystemClock};
use kubelet::Config;
use kubelet::config::{Settings, Shutdown};
use kubelet::node::inhibit::{Inhibitor, Places};
use kubelet::node::{self, Node};
use kubelet::runtime::Runtime;
use kubelet::serve::{self, Served};
use runtime::images::Images;
use runtime::service::{NetworkOptions, Service};
use server::Server;
use server::tls::Serving;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::component;
use crate::component::follow::Follow;
use crate::component::node::{Access, Listeners};
use crate::error::{Error, Result};
use crate::local::Local;
use crate::machine::traces::Traces;
use crate::machine::{identity, lock, pods};
use crate::node::flags::Flags;
use crate::node::host;

#[derive(clap::Args)]
pub struct Arguments {
    /// The name of this machine's node [default: the machine's name]
    #[arg(long)]
    node_name: Option<String>,
    /// The socket of another container runtime, such as containerd's, instead of the one in the house
    #[arg(long, value_name = "SOCKET")]
    container_runtime_endpoint: Option<String>,
    /// Pods' directories [default: DATA_DIR/kubelet]
    #[arg(long)]
    root_dir: Option<PathBuf>,
    /// Logs of containers
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// The cgroup below which all of pods' are
    #[arg(long, default_value = "/")]
    cgroup_root: String,
    /// Whether a pod that is deleted is told to end only once the service proxies that confirm have taken it out of
    /// rotation, or half of its grace period has passed
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    drain_by_proxies: bool,
    /// A KubeletConfiguration for this machine's node
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
}

/// What `up` says itself: a file that says it too would not be heard.
const SAID: [(&str, &str); 12] = [
    ("authentication.x509.clientCAFile", "the cluster's own authority is believed"),
    ("cgroupRoot", "--cgroup-root says it"),
    ("containerRuntimeEndpoint", "--container-runtime-endpoint says it"),
    ("imageServiceEndpoint", "--container-runtime-endpoint says it"),
    ("kubeAPIBurst", IN_PROCESS),
    ("kubeAPIQPS", IN_PROCESS),
    ("logging", "--log-format and --log-level say it"),
    ("podLogsDir", "--pod-logs-dir says it"),
    ("rotateCertificates", IN_PROCESS),
    ("shutdownGracePeriod", WITHOUT_SHUTDOWN),
    ("shutdownGracePeriodByPodPriority", WITHOUT_SHUTDOWN),
    ("shutdownGracePeriodCriticalPods", WITHOUT_SHUTDOWN),
];
const IN_PROCESS: &str = "the agent is in one process with its API server";
const WITHOUT_SHUTDOWN: &str = "pods end with the machine only where `kubelet` or `agent` runs them";

/// What a kubelet asks of its machine and of the kernel, only where the file says so: neither the machine nor the
/// process is the agent's alone.
fn ask_of_machine(config: &Config, said: &api::Tree, root: &Path) -> Result<()> {
    let mut asked = config.clone();
    asked.swap.fail_on &= said.has("failSwapOn");
    asked.process.fail_cgroup_v1 &= said.has("failCgroupV1");
    host::check(&asked, root)?;
    if said.has("oomScoreAdj") {
        host::set_oom_score(config);
    }
    if said.has("maxOpenFiles") {
        host::raise_open_files(config);
    }
    Ok(())
}

/// What the kubelet is told by flags and a file, over what differs from upstream's defaults here. A flag counts before
/// the file.
fn settings(file: Option<&Path>, flags: &Flags) -> Result<(Settings, api::Tree)> {
    let said = file.map_or(Ok(api::tree! {}), read).map_err(|why| vec![why]);
    let settings = said.and_then(|said| {
        let said = api::patch::merge(said, &flags.overlay.0);
        if let Some((field, why)) = SAID.iter().find(|(field, _)| !said.at(field).is_null()) {
            return Err(vec![format!("{field}: {why}")]);
        }
        let flags =
            crate::node::flags::parse(&SHARED_MACHINE.map(str::to_string)).map_err(|error| vec![error.to_string()])?;
        let mut own = flags.overlay.0;
        // What the file says of a field is all that counts of it.
        said.as_map().into_iter().flat_map(|map| map.keys()).for_each(|key| drop(own.remove(key)));
        let settings = kubelet::config::read(&api::patch::merge(own, &said), &Default::default())?;
        Ok((settings, said))
    });
    let named = |why: &String| match file {
        Some(file) => format!("--kubelet-config: {}: {why}", file.display()),
        None => format!("--kubelet-arg: {why}"),
    };
    settings.map_err(|whys| Error::Flags(whys.iter().map(named).collect()))
}

fn read(file: &Path) -> std::result::Result<api::Tree, String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    api::yaml::decode(&bytes).map_err(|error| error.to_string())
}

/// What differs from a kubelet's defaults on a machine that is not its cluster's alone. Its disk is full of other
/// things: how large a part is left says nothing, and images that nobody uses go only when pods need their place.
pub const SHARED_MACHINE: [&str; 5] = [
    "--cluster-domain=cluster.local",
    "--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<1%,imagefs.available<1Gi,\
     imagefs.inodesFree<1%",
    "--image-gc-high-threshold=100",
    "--registry-qps=0",
    "--serialize-image-pulls=false",
];

/// What the agent is told.
pub struct Options {
    pub config: Config,
    /// The KubeletConfiguration that is in effect, as the port shows it; upstream's defaults without one.
    pub shown: Option<api::Tree>,
    pub runtime: Choice,
    /// Several clusters may be on the machine: a port that is in use is exchanged for another.
    pub is_shared: bool,
    /// Of the built-in pod network, where this node uses it.
    pub pod_network: Option<lock::Lock>,
}

/// Who makes the containers.
pub enum Choice {
    Embedded(Embedded),
    Socket(PathBuf),
}

/// The built-in runtime of a data directory.
pub struct Embedded {
    pub data_dir: PathBuf,
    pub cgroup_root: String,
}

impl Options {
    /// None where this user cannot run containers.
    pub fn of(arguments: Arguments, flags: &Flags, data_dir: &Path) -> Result<Option<Options>> {
        if !can_run_pods() {
            return Ok(None);
        }
        let (settings, said) = settings(arguments.kubelet_config.as_deref(), flags)?;
        ask_of_machine(&settings.config, &said, Path::new("/"))?;
        let client_ca_file = Some(data_dir.join("pki/ca.crt"));
        let serving = kubelet::config::Serving { client_ca_file, ..settings.config.serving };
        let config = Config {
            serving,
            root_dir: arguments.root_dir.unwrap_or_else(|| data_dir.join("kubelet")),
            pod_logs_dir: arguments.pod_logs_dir,
            cgroup_root: arguments.cgroup_root.clone(),
            node_name: node_name(arguments.node_name)?,
            drain_by_proxies: arguments.drain_by_proxies,
            node_ips: flags.node_ips.clone(),
            node_labels: flags.node_labels.clone(),
            register_schedulable: !flags.is_unschedulable,
            external_cloud_provider: flags.external_cloud_provider,
            pod_infra_image: flags.pod_infra_image.clone(),
            container_gc: flags.container_gc,
            credential_provider_config: flags.credential_provider_config.clone(),
            credential_provider_bin_dir: flags.credential_provider_bin_dir.clone(),
            ..settings.config
        };
        let runtime = match arguments.container_runtime_endpoint {
            Some(socket) => Choice::Socket(socket.strip_prefix("unix://").unwrap_or(&socket).into()),
            None => Choice::Embedded(Embedded { data_dir: data_dir.to_path_buf(), cgroup_root: arguments.cgroup_root }),
        };
        let pod_network = runtime.lock_pod_network()?;
        Ok(Some(Options { config, shown: Some(settings.shown), runtime, is_shared: true, pod_network }))
    }
}

impl Choice {
    /// Locks the built-in pod network, where pods get their addresses from it.
    pub fn lock_pod_network(&self) -> Result<Option<lock::Lock>> {
        match self {
            Choice::Embedded(embedded) if !has_network_configuration(Path::new(CNI_CONF_DIR)) => {
                lock::lock_pod_network(&embedded.data_dir, Path::new(STATES)).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Whether the machine has a network configuration for pods, which is used instead of the built-in one.
fn has_network_configuration(dir: &Path) -> bool {
    let is_configuration =
        |path: PathBuf| path.extension().is_some_and(|end| CNI_EXTENSIONS.iter().any(|one| end == *one));
    std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| is_configuration(entry.path()))
}

/// Whether this user can run containers.
pub fn can_run_pods() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of this machine's node, told or its own.
fn node_name(told: Option<String>) -> Result<String> {
    let name = told.unwrap_or_else(server::hostname).to_lowercase();
    let wrong = api::validation::dns1123_subdomain(&name);
    match wrong.first() {
        None => Ok(name),
        Some(why) => Err(Error::Flags(vec![format!("--node-name: {name:?}: {why}")])),
    }
}

/// Where what runs is found again after a restart: a directory for each cluster. A reboot ends all of it.
const STATES: &str = "/run/tiphys";
const CNI_CONF_DIR: &str = "/etc/cni/net.d";
const CNI_EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

impl Embedded {
    /// What it keeps is in the data directory, what runs is found again by the id of the cluster.
    fn options(&self) -> Result<runtime::service::Options> {
        let data_dir = identity::open_data_dir(&self.data_dir)?;
        let id = identity::cluster_id(&data_dir, Path::new(STATES))?;
        Ok(runtime::service::Options {
            root: data_dir.join("runtime"),
            state: Path::new(STATES).join(id),
            handlers: Default::default(),
            shim_cgroup: format!("{}/tiphys-shims", self.cgroup_root.trim_end_matches('/')),
            network: NetworkOptions {
                conf_dir: CNI_CONF_DIR.into(),
                bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
                cache_dir: data_dir.join("cni"),
                builtin: true,
            },
            streaming_address: SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }
}

/// The agent of this machine at work.
pub struct Running {
    agent: kubelet::Running,
    object: Arc<Node>,
    shutdown: Shutdown,
    /// Where pods are waited for when the machine goes down.
    inhibitor: Option<Inhibitor>,
    /// The node's own object, and its certificate.
    tasks: Vec<JoinHandle<()>>,
    /// Ends the ports.
    stop: watch::Sender<bool>,
    opened: Opened,
    traces: Traces,
    /// Held until the end: another cluster may use the network then.
    pod_network: Option<lock::Lock>,
}

impl Running {
    /// What this node leaves on its machine.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Ends the pods, since the machine goes down; then it may.
    pub async fn shut_down(&self) {
        node::shutdown::run(&self.object, &self.agent, &self.shutdown).await;
        self.inhibitor.iter().for_each(Inhibitor::release);
    }

    /// The machine stays up after all.
    pub fn stay_up(&self) {
        node::shutdown::call_off(&self.object);
    }

    /// Waits until the machine goes down, or after that does not: whether it does.
    pub async fn machine_changed(&mut self) -> bool {
        match &mut self.inhibitor {
            Some(inhibitor) => inhibitor.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Has the machine wait for pods when it goes down, where a time is set for that.
    pub fn inhibit(&mut self) {
        let period = node::shutdown::whole(&self.shutdown);
        if !period.is_zero() {
            self.inhibitor = Some(Inhibitor::start(Places::of_machine(), period));
        }
    }

    /// Ends the kubelet; its pods run on.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.agent.stop().await;
    }

    /// Ends the kubelet and its pods, and removes what they left on the machine; the texts say what could not be
    /// removed.
    pub async fn stop_with_pods(self, report: &kubelet::stop::Report<'_>) -> Vec<String> {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
        self.agent.stop_with_pods(report).await;
        let left = self.opened.remove_pods().await.err();
        let (traces, state) = (self.traces, self.opened.close());
        let removed = tokio::task::spawn_blocking(move || traces.remove(state.as_deref())).await;
        drop(self.pod_network);
        left.into_iter().chain(removed.unwrap_or_default()).collect()
    }
}

/// A runtime that answers.
pub struct Opened {
    pub runtime: Runtime,
    /// The built-in one, and where it keeps what runs.
    pub embedded: Option<(Arc<Service>, PathBuf)>,
}

impl Opened {
    /// Removes all pods that the built-in runtime still has.
    async fn remove_pods(&self) -> std::result::Result<(), String> {
        if self.embedded.is_none() {
            return Ok(());
        }
        let left = pods::list(&self.runtime).await?.into_iter().map(|(_, uid)| uid).collect();
        pods::remove(&self.runtime, &left).await
    }

    /// Ends the processes of the built-in runtime; the directory of its state, which nothing uses any more.
    pub fn close(self) -> Option<PathBuf> {
        let (service, state) = self.embedded?;
        service.end_zygote();
        Some(state)
    }
}

pub async fn start(server: &Arc<Server>, options: Options) -> Result<Running> {
    let client = Local::new(server).node(&options.config.node_name);
    run(client, options).await
}

/// Runs the agent as whom the client acts.
pub async fn run(client: Client, options: Options) -> Result<Running> {
    let place = match &options.runtime {
        Choice::Socket(socket) => format!("--container-runtime-endpoint {}: ", socket.display()),
        Choice::Embedded(_) => String::new(),
    };
    let mut config = options.config;
    let traces = Traces {
        root_dir: config.root_dir.clone(),
        pod_logs_dir: config.pod_logs_dir.clone(),
        cgroup_root: config.cgroup_root.clone(),
        runtime_endpoint: match &options.runtime {
            Choice::Socket(socket) => Some(socket.clone()),
            Choice::Embedded(_) => None,
        },
        owns_pod_network: options.pod_network.is_some(),
    };
    if let Choice::Embedded(embedded) = &options.runtime {
        traces.write(&identity::open_data_dir(&embedded.data_dir)?)?;
    }
    let opened = open(options.runtime).await?;
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
    node.tell(|reports| reports.declared_features.push(server::outbound::kubelets::WEBSOCKETS.to_string()));
    let environment = kubelet::Environment {
        client: client.clone(),
        runtime,
        node: node.clone(),
        config: config.clone(),
        clock,
        metrics: metrics.clone(),
        seed,
    };
    let agent = kubelet::start(environment).await.map_err(|why| Error::Agent(format!("{place}{why}")))?;
    let (stop, serving) = serve_ports(listeners, (&config, options.shown), &client, &agent, metrics)?;
    let mut tasks = vec![tokio::spawn(node.run())];
    if config.certificates.server_bootstrap {
        let rotated = crate::node::serving::rotated(&config, &client, serving, object.object());
        tasks.push(tokio::spawn(rotated.run()));
    }
    let pod_network = options.pod_network;
    Ok(Running { agent, object, shutdown, inhibitor: None, tasks, stop, opened, traces, pod_network })
}

/// Answers on the agent's ports.
fn serve_ports(
    listeners: Listeners,
    (config, shown): (&Config, Option<api::Tree>),
    client: &Client,
    agent: &kubelet::Running,
    metrics: Metrics,
) -> Result<(watch::Sender<bool>, Arc<Serving>)> {
    let defaults = || kubelet::config::read(&api::tree! {}, &Default::default()).map(|settings| settings.shown);
    let shown = shown.map_or_else(defaults, Ok).map_err(Error::Flags)?;
    let host = Arc::new(Served::new(agent, metrics, shown));
    let answers = Arc::new(serve::Node::new(host, serve::Settings::of(config)));
    let address = config.node_ips.first().copied().unwrap_or(config.serving.address);
    let serving = component::node::serving(config, address)?;
    let (stop, stopped) = watch::channel(false);
    let mut follow = Follow::default();
    component::node::follow_serving(config, &serving, &mut follow);
    component::node::serve(listeners, serving.clone(), Access::of(config, client), answers, &stopped, &mut follow)?;
    tokio::spawn(follow.run(stopped));
    Ok((stop, serving))
}

pub async fn open(choice: Choice) -> Result<Opened> {
    match choice {
        Choice::Socket(socket) => {
            let (service, images) = cri::connect(&socket);
            let runtime = Runtime { service: Arc::new(service), images: Arc::new(images) };
            Ok(Opened { runtime, embedded: None })
        }
        Choice::Embedded(embedded) => {
            let options = embedded.options()?;
            let images = Images::open(&options.root.join("images"), Default::default())
                .map_err(|error| Error::Agent(format!("opening the images: {}", error.chain())))?;
            let state = options.state.clone();
            let service = Service::open(options, images).await;
            let service = Arc::new(service.map_err(|error| Error::Agent(error.to_string()))?);
            let runtime = Runtime { service: service.clone(), images: service.clone() };
            Ok(Opened { runtime, embedded: Some((service, state)) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_say_what_up_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kubelet.yaml");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            settings(Some(&file), &Flags::default())
                .map(|(settings, _)| settings.config)
                .map_err(|error| error.describe())
        };
        let config = read("{cpuManagerPolicy: static, serializeImagePulls: true}").expect("settings");
        assert!(config.pinning.cpu_static && config.serialize_image_pulls);
        assert_eq!(config.cluster_domain, "cluster.local");
        for (text, want) in [
            ("cgroupRoot: /x", "cgroupRoot: --cgroup-root says it"),
            ("kubeAPIQPS: 5", "kubeAPIQPS: the agent is in one process with its API server"),
            ("logging: {verbosity: 4}", "logging: --log-format and --log-level say it"),
            ("rotateCertificates: true", "rotateCertificates: the agent is in one process"),
            ("shutdownGracePeriod: 5s", "shutdownGracePeriod: pods end with the machine only where"),
            ("maxPods: many", "kubelet.yaml: maxPods: must be an integer"),
        ] {
            let why = read(text).expect_err("refused");
            assert!(why.contains("--kubelet-config") && why.contains(want), "{why}");
        }
    }

    #[test]
    fn a_machine_is_judged_only_as_a_file_says() {
        let machine = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(machine.path().join("proc")).expect("a directory");
        std::fs::write(machine.path().join("proc/swaps"), "Filename\n/dev/sda2 partition 1 0 -2\n").expect("a file");
        let mut config = Config::default();
        config.process.fail_cgroup_v1 = true;
        let judge = |said: api::Tree| {
            ask_of_machine(&config, &said, machine.path()).map_err(|error| error.describe()).err().unwrap_or_default()
        };
        assert_eq!(judge(api::tree! {}), "");
        assert!(judge(api::tree! { "failSwapOn" => true }).contains("running with swap on is not supported"));
        assert!(judge(api::tree! { "failCgroupV1" => true }).contains("failCgroupV1"));
    }
}
