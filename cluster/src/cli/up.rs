//! `tiphys up` in the foreground: its arguments, its output, and how it stops.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::network::cidr::IpNet;
use kubelet::pod::stop::{Report, Stopped};
use stdx::sync::Mutex;

use super::{interrupted, runtime, say};
use crate::control_plane::{Pods, Running};
use crate::error::{Error, Result};
use crate::logs::{self, Format, Level};
use crate::machine::address;
use crate::machine::identity::open_data_dir;
use crate::machine::lock::lock_data_dir;
use crate::machine::network::{self, ClusterNetwork, Requested};
use crate::node::container_runtime::STATES;
use crate::node::options;
use crate::up::arguments::ComponentArguments;
use crate::up::{self, Up};

#[derive(clap::Args)]
pub(crate) struct UpArguments {
    /// The data directory of the cluster
    #[arg(long, default_value = "./data")]
    data_dir: PathBuf,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind_address: IpAddr,
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// An additional name or address of the serving certificate; can be repeated
    #[arg(long = "tls-san", value_delimiter = ',')]
    tls_sans: Vec<String>,
    /// The controllers to run: `*` for all, a name for one, `-name` for all but that one
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = up::CONTROLLERS)]
    controllers: Vec<String>,
    /// Do not run the scheduler, for clusters with another one
    #[arg(long)]
    disable_scheduler: bool,
    /// The range of pod addresses, or one of each family [default: a free one, 10.42.0.0/16 first; kept in the data
    /// directory]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// The range of service addresses, or one of each family [default: a free one, 10.96.0.0/16 first; kept in the
    /// data directory]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    service_cidr: Vec<IpNet>,
    /// Add fake nodes that simulate pods: pods become ready, Jobs complete, deletions finish
    #[arg(long, value_name = "N", default_value_t = 0)]
    fake_nodes: u32,
    /// Do not run the kubelet: this machine does not become a node
    #[arg(long)]
    disable_agent: bool,
    /// Keep pods running when this command stops; the next `up` takes them over
    #[arg(long)]
    keep_pods: bool,
    #[command(flatten)]
    agent: options::Arguments,
    #[command(flatten)]
    components: ComponentArguments,
    /// Where to write the kubeconfig [default: DATA_DIR/kubeconfig]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The format of the log on standard error
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    #[arg(long, value_enum, default_value_t = Level::Warn)]
    log_level: Level,
}

pub(super) fn run(args: UpArguments) -> Result<()> {
    logs::init(args.log_format, args.log_level);
    let data_dir = open_data_dir(&args.data_dir)?;
    // Before anything else: a second start on the same directory gets this error and no other.
    let lock = lock_data_dir(&data_dir)?;
    let pods = match (args.disable_agent, options::can_run_pods()) {
        (false, true) => PodSupport::Run,
        (false, false) => PodSupport::NeedRoot,
        (true, _) => PodSupport::Off { fake_nodes: args.fake_nodes > 0 },
    };
    if args.disable_agent && !args.components.kubelet.is_empty() {
        return Err(Error::Flags(vec!["--kubelet-arg: there is no kubelet with --disable-agent".to_string()]));
    }
    let requested = Requested { pod_cidrs: args.cluster_cidr, service_cidrs: args.service_cidr };
    let (network, claim) = match pods {
        PodSupport::Run => {
            let claim = network::claim(&data_dir, Path::new(STATES), &requested)?;
            (claim.network.clone(), Some(claim))
        }
        _ => (network::open(&data_dir, &requested)?, None),
    };
    let listen = SocketAddr::new(args.bind_address, args.port);
    let kubeconfig = args.kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
    let options = Up {
        data_dir: data_dir.clone(),
        lock,
        listen,
        kubeconfig: kubeconfig.clone(),
        tls_sans: args.tls_sans,
        controllers: args.controllers,
        manager: args.components.manager()?,
        scheduler: (!args.disable_scheduler).then(|| args.components.scheduler()).transpose()?,
        fake_nodes: args.fake_nodes,
        agent: match args.disable_agent {
            true => None,
            false => {
                let kubelet = args.components.kubelet()?;
                options::Options::of(args.agent, &kubelet, &data_dir, args.bind_address, claim)?.map(Box::new)
            }
        },
        apiserver: args.components.apiserver(&data_dir, listen)?,
        network: network.clone(),
    };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let steps = Steps::new();
        let running = Box::pin(up::up(options, &|step| steps.begin(step))).await.inspect_err(|_| steps.fail())?;
        steps.end();
        let ready = Ready {
            took: steps.started.elapsed(),
            address: running.address,
            kubeconfig: &kubeconfig,
            data_dir: &data_dir,
            pods,
            network: &network,
        };
        say(&ready.text());
        interrupted().await;
        stop(running, args.keep_pods, &data_dir).await;
        Ok(())
    });
    // What still waits for a pod after a second signal is not waited for.
    runtime.shutdown_background();
    result
}

/// Whether pods can be run, and why not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodSupport {
    Run,
    NeedRoot,
    Off { fake_nodes: bool },
}

/// The text that is printed once the cluster is ready.
struct Ready<'a> {
    took: Duration,
    address: SocketAddr,
    kubeconfig: &'a Path,
    data_dir: &'a Path,
    pods: PodSupport,
    network: &'a ClusterNetwork,
}

impl Ready<'_> {
    fn text(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        let here = SocketAddr::new(address::reachable(ip), port);
        let mut text = format!("\nThe cluster is ready after {} ms at https://{here}\n", self.took.as_millis());
        if ip.is_unspecified() {
            text.push_str(&format!("Other machines reach it at {}\n", address::joined_at(self.address)));
        }
        if self.pods == PodSupport::Run {
            text.push_str(&format!("{}\n", describe_ranges(self.network)));
        }
        text.push_str(&format!("\n  export KUBECONFIG={}\n", self.kubeconfig.display()));
        self.pods.commands().iter().for_each(|command| text.push_str(&format!("  {command}\n")));
        if self.pods == PodSupport::NeedRoot {
            text.push_str(
                "\nRunning pods on this machine needs root: start `tiphys up` as root, or with --fake-nodes 1 to\n\
                 simulate pods\n",
            );
        }
        format!("{text}\nctrl-c stops it; its data stays in {}", self.data_dir.display())
    }
}

fn describe_ranges(network: &ClusterNetwork) -> String {
    let show = |cidrs: &[IpNet]| cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    format!("Pods have addresses of {}, services of {}", show(&network.pod_cidrs), show(&network.service_cidrs))
}

impl PodSupport {
    /// Something to see, by what the cluster can do.
    fn commands(self) -> &'static [&'static str] {
        const CREATE: &str = "kubectl create deployment hello --image=tiphys.local/hello";
        match self {
            PodSupport::Run => &[
                CREATE,
                "kubectl wait --for=condition=Available deployment/hello",
                "kubectl port-forward deployment/hello 8080 & sleep 1; curl http://127.0.0.1:8080",
            ],
            PodSupport::Off { fake_nodes: true } => &[CREATE, "kubectl get pods --output wide"],
            PodSupport::Off { fake_nodes: false } | PodSupport::NeedRoot => &["kubectl get namespaces"],
        }
    }
}

/// Stops the cluster and its pods; a second signal ends it at once.
async fn stop(running: Running, keeps_pods: bool, data_dir: &Path) {
    let reset = format!("tiphys reset --data-dir {}", data_dir.display());
    let is_node = running.is_node();
    let report = Report {
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

fn say_stopped(stopped: Stopped) {
    let Stopped { pod, took, result } = stopped;
    match result {
        Ok(()) => say(&format!("  ✓ {pod} ({} ms)", took.as_millis())),
        Err(why) => say(&format!("  ✗ {pod}: {why}")),
    }
}

/// Progress of the start: a terminal shows the current step, other outputs each step when it is done.
struct Steps {
    started: Instant,
    current: Mutex<Option<(String, Instant)>>,
    terminal: bool,
}

impl Steps {
    fn new() -> Steps {
        Steps { started: Instant::now(), current: Mutex::new(None), terminal: std::io::stdout().is_terminal() }
    }

    fn begin(&self, step: &str) {
        self.end();
        if self.terminal {
            print!("  … {step}");
            let _ = std::io::stdout().flush();
        }
        *self.current.lock() = Some((step.to_string(), Instant::now()));
    }

    fn end(&self) {
        let current = self.current.lock().take();
        let Some((step, since)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✓ {step} ({} ms)", since.elapsed().as_millis()));
    }

    fn fail(&self) {
        let current = self.current.lock().take();
        let Some((step, _)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✗ {step}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_commands_that_work() {
        let check = |address: &str, pods: PodSupport, want: &[&str], missing: &[&str]| {
            let (kubeconfig, data_dir) = (Path::new("/d/kubeconfig"), Path::new("/d"));
            let address = address.parse().expect("an address");
            let network = &ClusterNetwork::usual();
            let text = Ready { took: Duration::ZERO, address, kubeconfig, data_dir, pods, network }.text();
            want.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
            missing.iter().for_each(|part| assert!(!text.contains(part), "{part}: {text}"));
        };
        let off = PodSupport::Off { fake_nodes: false };
        check(
            "127.0.0.1:6443",
            PodSupport::Run,
            &[" at https://127.0.0.1:6443\n", "deployment hello", "10.42.0.0/16, services of 10.96.0.0/16\n"],
            &["Other", "root"],
        );
        check("0.0.0.0:6443", off, &[" at https://127.0.0.1:6443\n", "Other machines"], &["https://0.0.0.0", "hello"]);
        check("10.0.0.1:1", PodSupport::NeedRoot, &["https://10.0.0.1:1", "needs root"], &["Other", "hello"]);
        check("10.0.0.1:1", PodSupport::Off { fake_nodes: true }, &["deployment hello"], &["port-forward"]);
    }
}
