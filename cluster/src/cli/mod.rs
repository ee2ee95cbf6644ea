//! The command line.

pub mod certs;
mod check;
mod components;
mod detach;
mod down;
mod instance;
mod list;
mod logs_command;
mod node_commands;
mod ready;
pub mod reset;
mod server_command;
mod session;
mod settings;
mod status;
mod store;
mod table;
mod up;
mod up_servers;
pub mod why;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

use crate::error::{Error, Result};
use crate::logs::{self, Format, Level};
use crate::{error, node};
use why::{WhyRequest, WhySubject};

#[derive(Parser)]
#[command(name = "tiphys", about = "Kubernetes in one binary", version)]
#[command(after_help = "More commands, each with its own --help:
  tiphys cri     runs the container runtime with a CRI socket for any kubelet
  tiphys history, diff, undo  show what objects were, and restore them
  tiphys images  pulls, lists, imports, exports and removes images
  tiphys hello   runs the small web server of the demo image
  tiphys bench   runs benchmarks")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a whole cluster on this machine
    Up(Box<up::UpArguments>),
    /// Stops a running cluster of this machine
    Down(down::DownArguments),
    /// Shows whether a cluster of this machine runs, how healthy it is, and what is wrong
    Status(status::StatusArguments),
    /// Shows the log of a cluster of this machine, or of one of its components
    Logs(logs_command::LogsArguments),
    /// Lists the clusters of this machine
    List(list::ListArguments),
    /// Inspects this machine: kernel, cgroups, ports, disk, and what would conflict with a cluster
    Check(check::CheckArguments),
    /// Prints, checks and explains the settings of `up`, `server` and `agent`
    Config(settings::ConfigArguments),
    /// Runs a server of a control plane: API server, controllers and scheduler; several servers can share one etcd
    Server(Box<server_command::ServerArguments>),
    /// Runs the API server alone, with upstream's flags
    #[command(name = "kube-apiserver", disable_help_flag = true)]
    KubeApiserver {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Runs the controllers alone, with upstream's flags
    #[command(name = "kube-controller-manager", disable_help_flag = true)]
    KubeControllerManager {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Runs the scheduler alone, with upstream's flags
    #[command(name = "kube-scheduler", disable_help_flag = true)]
    KubeScheduler {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Runs the cluster DNS alone, with the flags of CoreDNS
    #[command(name = "dns", disable_help_flag = true)]
    Dns {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Runs the service proxy alone, with upstream's flags
    #[command(name = "kube-proxy", disable_help_flag = true)]
    KubeProxy {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Runs the kubelet alone, with upstream's flags
    #[command(name = "kubelet", disable_help_flag = true)]
    Kubelet {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Joins this machine to a cluster as a node, with a token
    Agent(node::join::Arguments),
    /// Lists, adds, removes, stops and starts the nodes of a running `up --nodes N`
    Node(node_commands::NodeArguments),
    /// Creates, lists and deletes tokens for joining machines
    Token(node::token::Arguments),
    /// Shows or rotates the certificates of a data directory
    Certs(CertsArgs),
    /// Copies, saves, restores, checks and maintains a store
    Store(store::Arguments),
    /// Explains why a pod is pending, or where a pod would be scheduled
    Why(WhyArgs),
    /// Removes a data directory and everything that its pods left on this machine
    Reset(reset::Arguments),
    /// Shows the version of this binary and of Kubernetes
    Version,
}

#[derive(clap::Args)]
struct WhyArgs {
    /// `pod NAME`
    #[arg(required_unless_present = "manifest", conflicts_with = "manifest", num_args = 1..=2)]
    pod: Vec<String>,
    /// Explain where the pod of this manifest would be scheduled, without creating it
    #[arg(long = "if", value_name = "FILE")]
    manifest: Option<PathBuf>,
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// [default: $KUBECONFIG, ./data/kubeconfig or ~/.kube/config]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[arg(long, short, value_enum, default_value_t)]
    output: why::Output,
}

#[derive(clap::Args)]
struct CertsArgs {
    #[command(flatten)]
    instance: instance::InstanceArguments,
    #[command(subcommand)]
    command: Option<CertsCommand>,
}

#[derive(Subcommand)]
enum CertsCommand {
    /// Lists the certificates with their expiration and names
    List,
    /// Creates new certificates, which a running cluster reloads. Rotating a CA also rotates what it has signed
    Rotate {
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All certificates except the CAs, which must be named
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

/// On every machine that this runs on.
const SIGPWR: i32 = 30;

/// Tests of upgrades run one binary as two versions. A release build does not have this variable.
#[cfg(debug_assertions)]
fn report_test_version() {
    if let Some(minor) = std::env::var("TIPHYS_TEST_MINOR_VERSION").ok().and_then(|text| text.parse().ok()) {
        api::version::report_minor(minor);
    }
}

/// Components that the binary is when it is called by their names.
const COMPONENTS: &[&str] = &["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"];

/// Runs the command line.
pub fn main() -> ExitCode {
    #[cfg(debug_assertions)]
    report_test_version();
    let cli = match parse(&arguments(std::env::args().collect())) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let result = match cli.command {
        Command::Version => {
            println!("tiphys {} (Kubernetes 1.{})", env!("CARGO_PKG_VERSION"), api::version::minor());
            Ok(())
        }
        Command::Up(args) => up::run(*args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Logs(args) => logs_command::run(&args),
        Command::List(args) => {
            list::run(&args);
            Ok(())
        }
        Command::Check(args) => check::run(&args),
        Command::Config(args) => settings::run(&args),
        Command::Server(args) => server_command::run(*args),
        Command::KubeApiserver { flags } => components::run_apiserver(&flags),
        Command::KubeControllerManager { flags } => components::run_manager(&flags),
        Command::KubeScheduler { flags } => components::run_scheduler(&flags),
        Command::Dns { flags } => components::run_dns(&flags),
        Command::KubeProxy { flags } => components::run_proxy(&flags),
        Command::Kubelet { flags } => components::run_kubelet(&flags),
        Command::Agent(args) => run_agent(&args),
        Command::Node(args) => node_commands::run(args),
        Command::Token(args) => run_token(args),
        Command::Certs(args) => run_certs(args),
        Command::Store(args) => store::run(args),
        Command::Why(args) => run_why(args),
        Command::Reset(args) => run_reset(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Parses the arguments together with the settings of the environment and a configuration file. Otherwise the exit code,
/// after the error or the help was printed.
fn parse(arguments: &[String]) -> std::result::Result<Cli, ExitCode> {
    let settings = settings::collect(&Cli::command(), arguments, |name| std::env::var(name).ok());
    let settings = settings.map_err(|error| fail(&error))?;
    let parsed = Cli::command().try_get_matches_from(settings.applied(arguments));
    parsed.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| match settings.located(&error) {
        Some(error) => fail(&error),
        None => {
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    })
}

/// The arguments as if `tiphys` had been called, whatever the name of the file is.
fn arguments(mut arguments: Vec<String>) -> Vec<String> {
    let program = arguments.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    if let Some(component) = COMPONENTS.iter().find(|component| program == Some(component)) {
        arguments.insert(1, component.to_string());
    }
    arguments
}

/// The form of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    #[default]
    Text,
    Json,
}

/// The reader of the output may have exited, as in `up | head`: the cluster continues.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn run_reset(args: &reset::Arguments) -> Result<()> {
    logs::init(Format::default(), Level::Error);
    let (data_dir, _lock) = reset::open(&args.instance.data_dir()?)?;
    let described = reset::describe(&data_dir);
    if !args.force && !is_confirmed(&described)? {
        return Ok(());
    }
    let problems = runtime()?.block_on(reset::reset(&data_dir))?;
    if problems.is_empty() {
        say(&format!("{described} and everything that its pods left on this machine were removed"));
        return Ok(());
    }
    Err(Error::Flags(problems))
}

/// Asks for confirmation, which needs a terminal.
fn is_confirmed(data_dir: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let why = format!("{data_dir} would be removed: --force is required without a terminal");
        return Err(Error::Flags(vec![why]));
    }
    print!("This removes the cluster of {data_dir}, its pods and its volumes for good. Type yes to continue: ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Error::Runtime)?;
    Ok(answer.trim() == "yes")
}

fn run_certs(args: CertsArgs) -> Result<()> {
    let data_dir = args.instance.data_dir()?;
    match args.command {
        None | Some(CertsCommand::List) => print!("{}", certs::list(&data_dir)?),
        Some(CertsCommand::Rotate { names, all }) => {
            for name in certs::rotate(&data_dir, &names, all)? {
                println!("{name} rotated");
            }
        }
    }
    Ok(())
}

fn run_why(args: WhyArgs) -> Result<()> {
    let about = match args.manifest {
        Some(file) => WhySubject::Manifest(file),
        None => {
            let wrong = || Error::Flags(vec![format!("{}: `pod NAME` is expected", args.pod.join(" "))]);
            WhySubject::Pod(why::pod_name(&args.pod).ok_or_else(wrong)?)
        }
    };
    let WhyArgs { kubeconfig, namespace, output, .. } = args;
    let question = WhyRequest { kubeconfig, namespace, about, output };
    let explanation = runtime()?.block_on(why::ask(&question))?;
    print!("{explanation}");
    Ok(())
}

fn run_agent(args: &node::join::Arguments) -> Result<()> {
    if let Some(node::join::AgentCommand::Reset { force }) = &args.command {
        return run_reset(&reset::Arguments::of(args.data_dir.clone(), *force));
    }
    logs::init(args.log_format, args.log_level);
    if let Some(file) = &args.config {
        tracing::info!(file = %file.display(), "using configuration file");
    }
    // Held until the process exits, so that neither `reset` nor another agent uses the directory meanwhile.
    let _lock = node::join::lock(args)?;
    let start = async {
        let joined = node::join::join(args).await?;
        Box::pin(node::run_joined(joined)).await.map_err(node::join::explained)
    };
    runtime()?.block_on(run_node(start, args.stop_pods))
}

/// Runs until a signal; a start that waits can be interrupted.
async fn run_node(start: impl Future<Output = Result<node::KubeletProcess>>, stops_pods: bool) -> Result<()> {
    let mut started = tokio::select! {
        biased;
        () = interrupted() => return Ok(()),
        started = start => started?,
    };
    let power_failed = tokio::select! {
        biased;
        () = interrupted() => false,
        () = power_fails() => true,
        // After the pods have stopped, the kubelet waits for its signal: a service manager would restart it.
        () = started.follow_machine() => false,
    };
    if power_failed {
        started.shut_down().await;
    }
    if stops_pods {
        let left = started.stop_with_pods().await;
        return if left.is_empty() { Ok(()) } else { Err(Error::Flags(left)) };
    }
    started.stop().await;
    Ok(())
}

/// Waits for SIGPWR, the signal of a power failure.
async fn power_fails() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::from_raw(SIGPWR)) {
        Ok(mut fails) => drop(fails.recv().await),
        Err(_) => std::future::pending().await,
    }
}

fn run_token(args: node::token::Arguments) -> Result<()> {
    let printed = runtime()?.block_on(node::token::run(args))?;
    print!("{printed}");
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)
}

/// Waits for the next signal that requests this process to stop. The listeners stay, so that a signal between two calls
/// is received by the second.
async fn interrupted() {
    static LISTENERS: OnceLock<Option<Mutex<[Signal; 2]>>> = OnceLock::new();
    let listen = || Some(Mutex::new([signal(SignalKind::interrupt()).ok()?, signal(SignalKind::terminate()).ok()?]));
    let Some(listeners) = LISTENERS.get_or_init(listen) else { return };
    let mut listeners = listeners.lock().await;
    let [interrupt, terminate] = &mut *listeners;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn fail(error: &error::Error) -> ExitCode {
    for line in error.describe().lines() {
        eprintln!("error: {line}");
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_signal_is_lost_between_two_waits() {
        let wait = |time| tokio::time::timeout(time, interrupted());
        assert!(wait(std::time::Duration::from_millis(1)).await.is_err(), "there is no signal yet");
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::TERM).expect("a signal to this process");
        wait(std::time::Duration::from_secs(30)).await.expect("it is received later");
    }

    #[test]
    fn finds_the_component_by_file_name() {
        let call = |words: &str| arguments(words.split(' ').map(str::to_string).collect()).join(" ");
        assert_eq!(call("/usr/bin/kube-apiserver --v=2"), "/usr/bin/kube-apiserver kube-apiserver --v=2");
        assert_eq!(call("tiphys up"), "tiphys up");
    }

    #[test]
    fn passes_the_flags_of_coredns_on() {
        let cli = Cli::try_parse_from(["tiphys", "dns", "-conf", "/etc/coredns/Corefile", "-dns.port=1053"]);
        let Ok(Cli { command: Command::Dns { flags } }) = cli else { panic!("it is parsed") };
        assert_eq!(flags, ["-conf", "/etc/coredns/Corefile", "-dns.port=1053"]);
    }
}
