//! `tiphys up` in the foreground: what it is told, what it shows, and how it ends.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use kubelet::stop::{Report, Stopped};

use super::{interrupted, runtime, say};
use crate::agent;
use crate::boot::{Pods, Running};
use crate::error::Result;
use crate::logs::{self, Format, Level};
use crate::machine::identity::open_data_dir;
use crate::machine::lock::lock_data_dir;
use crate::up::{self, Up};

#[derive(clap::Args)]
pub struct UpArguments {
    /// Where everything is kept
    #[arg(long, default_value = "./data")]
    data_dir: PathBuf,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind_address: IpAddr,
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// A further name or address of the server's certificate; can be repeated
    #[arg(long = "tls-san", value_delimiter = ',')]
    tls_sans: Vec<String>,
    /// The controllers to run: `*` for all, a name for one, `-name` for all but that one
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = up::CONTROLLERS)]
    controllers: Vec<String>,
    /// Pods get their nodes from somebody else
    #[arg(long)]
    disable_scheduler: bool,
    /// Nodes that run nothing but behave: pods become ready, Jobs end, deletions are completed
    #[arg(long, value_name = "N", default_value_t = 0)]
    fake_nodes: u32,
    /// This machine is no node of the cluster: nothing runs on it
    #[arg(long)]
    disable_agent: bool,
    /// Pods run on when this command is stopped; the next `up` takes them over
    #[arg(long)]
    keep_pods: bool,
    #[command(flatten)]
    agent: agent::Arguments,
    /// Where to write the kubeconfig [default: DATA_DIR/kubeconfig]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The form of the log, which goes to standard error
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    #[arg(long, value_enum, default_value_t = Level::Warn)]
    log_level: Level,
}

pub fn run(args: UpArguments) -> Result<()> {
    logs::init(args.log_format, args.log_level);
    let data_dir = open_data_dir(&args.data_dir)?;
    // Before anything else: a second start on the same directory is told so, whatever else it could not have.
    let lock = lock_data_dir(&data_dir)?;
    let kubeconfig = args.kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
    let options = Up {
        data_dir: data_dir.clone(),
        lock,
        listen: SocketAddr::new(args.bind_address, args.port),
        kubeconfig: kubeconfig.clone(),
        tls_sans: args.tls_sans,
        controllers: args.controllers,
        is_scheduling: !args.disable_scheduler,
        fake_nodes: args.fake_nodes,
        agent: if args.disable_agent { None } else { agent::Options::of(args.agent, &data_dir)?.map(Box::new) },
        config: server::Config::default(),
    };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let steps = Steps::new();
        let running = up::up(options, &|step| steps.begin(step)).await.inspect_err(|_| steps.fail())?;
        steps.end();
        say(&format!(
            "\nThe cluster is ready after {} ms at https://{}\n\n  export KUBECONFIG={}\n  kubectl get namespaces\n\n\
             ctrl-c stops it; everything is kept in {}",
            steps.started.elapsed().as_millis(),
            running.address,
            kubeconfig.display(),
            data_dir.display()
        ));
        interrupted().await;
        stop(running, args.keep_pods, &data_dir).await;
        Ok(())
    });
    // What still waits for a pod after a second signal is not waited for.
    runtime.shutdown_background();
    result
}

/// Stops the cluster and its pods; a second signal ends it at once.
async fn stop(running: Running, keeps_pods: bool, data_dir: &Path) {
    let reset = format!("tiphys reset --data-dir {}", data_dir.display());
    let is_node = running.is_node();
    let report = Report {
        started: &|count| {
            if count > 0 {
                say(&format!("\nstopping {count} pods; ctrl-c again ends at once"));
            }
        },
        stopped: &say_stopped,
    };
    let pods = if keeps_pods { Pods::Keep } else { Pods::Stop(&report) };
    let left = tokio::select! {
        biased;
        () = interrupted() => {
            say(&format!("\nstopped at once: pods may run on, until the next `tiphys up` or `{reset}`"));
            return;
        }
        left = running.stop_with(pods) => left,
    };
    left.iter().for_each(|why| say(&format!("  ✗ {why}")));
    match (is_node && keeps_pods, left.is_empty()) {
        (true, _) => {
            say(&format!("stopped; its pods run on: the next `tiphys up` takes them over, `{reset}` removes them"))
        }
        (false, true) => say("stopped"),
        (false, false) => say(&format!("stopped; not all of its pods could be removed: `{reset}` tries it again")),
    }
}

fn say_stopped(stopped: Stopped) {
    let Stopped { pod, took, result } = stopped;
    match result {
        Ok(()) => say(&format!("  ✓ {pod} ({} ms)", took.as_millis())),
        Err(why) => say(&format!("  ✗ {pod}: {why}")),
    }
}

/// What is being started: on a terminal the step under way is shown, elsewhere each one as it is done.
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
        *self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some((step.to_string(), Instant::now()));
    }

    fn end(&self) {
        let current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some((step, since)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✓ {step} ({} ms)", since.elapsed().as_millis()));
    }

    fn fail(&self) {
        let current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some((step, _)) = current else { return };
        let start = if self.terminal { "\r" } else { "" };
        say(&format!("{start}  ✗ {step}"));
    }
}
