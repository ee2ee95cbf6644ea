//! The command line of the benchmark.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::figure::Report;
use crate::figures::{self, Plan};
use crate::{Result, bare, inside};

#[derive(Parser)]
#[command(name = "tiphys bench", about = "Measures the speed of this binary")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Arguments of all benchmarks.
#[derive(clap::Args)]
struct CommonArguments {
    /// Print a line of JSON for each figure
    #[arg(long)]
    json: bool,
    /// Use shorter rounds and smaller clusters
    #[arg(long)]
    quick: bool,
    /// Directory for temporary data of the measured servers
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the API server; the exit code is 1 if a figure misses its required ratio
    Api {
        #[command(flatten)]
        how: CommonArguments,
        /// The groups of figures to measure, all by default
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(figures::names()))]
        names: Vec<String>,
    },
    /// Measures authorization, audit, and fairness under a flood of requests
    Gate(CommonArguments),
    /// Measures custom resources, their definitions and rules, and admission policies
    Extensions(CommonArguments),
    /// Measures the controllers with a thousand fake nodes
    Controllers(CommonArguments),
    /// Measures the scheduler with five thousand nodes
    Scheduler {
        #[command(flatten)]
        how: CommonArguments,
        /// Only decisions, or pods created through the API; both by default
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(figures::scheduler::PARTS))]
        parts: Vec<String>,
    },
    /// Measures the container runtime against containerd; needs root
    Runtime(CommonArguments),
    /// Measures pods from creation to ready, on the built-in runtime and on containerd; needs root
    Pods(CommonArguments),
    /// Measures the cluster DNS
    Dns(CommonArguments),
    /// Measures the service proxy and the cluster DNS; needs root
    Network {
        #[command(flatten)]
        how: CommonArguments,
        /// The figures to measure, all by default
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(figures::network::PARTS))]
        parts: Vec<String>,
    },
    /// Measures the command line client against upstream's
    Kubectl(CommonArguments),
    /// Measures several nodes and several servers of this machine; needs root, and etcd for the servers
    Nodes {
        #[command(flatten)]
        how: CommonArguments,
        /// The figures to measure, all by default
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(figures::nodes::PARTS))]
        parts: Vec<String>,
    },
    /// A tenant that sends as many requests as it can
    #[command(hide = true)]
    Flood { address: SocketAddr, path: String, token: String },
    /// The time of the bare system calls for a pod, in microseconds
    #[command(hide = true)]
    Floor { image: PathBuf, work: PathBuf, rounds: usize },
    /// The bare server that sets the limits
    #[command(hide = true)]
    Bare { port: u16 },
    /// The bare read of a store's log
    #[command(hide = true)]
    Read { dir: PathBuf },
}

/// Runs `tiphys bench ...`.
pub fn main() -> ExitCode {
    let arguments = std::iter::once("tiphys bench".into()).chain(std::env::args_os().skip(2));
    let result = match Cli::parse_from(arguments).command {
        Command::Api { how, names } => measure(&how, async |plan, report| figures::run(plan, &names, report).await),
        Command::Gate(how) => measure(&how, async |plan, report| figures::gate::run(plan, report).await),
        Command::Extensions(how) => {
            measure(&how, async |plan, report| figures::extensions::run(how.quick, plan, report).await)
        }
        Command::Controllers(how) => {
            measure(&how, async |plan, report| figures::controllers::run(how.quick, plan, report).await)
        }
        Command::Scheduler { how, parts } => {
            measure(&how, async |plan, report| figures::scheduler::run(how.quick, plan, &parts, report).await)
        }
        Command::Runtime(how) => {
            measure_inside(&how, async |plan, report| Box::pin(figures::runtime::run(how.quick, plan, report)).await)
        }
        Command::Pods(how) => {
            measure_inside(&how, async |plan, report| Box::pin(figures::pods::run(how.quick, plan, report)).await)
        }
        Command::Nodes { how, parts } => {
            let run = async |plan: &Plan, report: &mut Report| {
                Box::pin(figures::nodes::run(how.quick, plan, &parts, report)).await
            };
            measure_inside(&how, run)
        }
        Command::Kubectl(how) => measure(&how, async |plan, report| figures::kubectl::run(plan, report).await),
        Command::Dns(how) => measure_blocking(&how, figures::dns::run),
        Command::Network { how, parts } => match inside::directory() {
            Some(dir) => measure_blocking(&CommonArguments { dir, ..how }, |plan, report| {
                figures::network::run(how.quick, plan, &parts, report)
            }),
            None => enter(&how),
        },
        Command::Flood { address, path, token } => runtime()
            .and_then(|runtime| runtime.block_on(figures::gate::send_flood(address, &path, &token)))
            .map(|()| true),
        Command::Floor { image, work, rounds } => figures::runtime::print_floor(&image, &work, rounds).map(|()| true),
        Command::Bare { port } => runtime().and_then(|runtime| runtime.block_on(bare::serve(port))).map(|()| true),
        Command::Read { dir } => figures::read_check_copy(&dir).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tiphys bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The same in its own namespaces, which are entered first.
fn measure_inside(how: &CommonArguments, figures: impl AsyncFnOnce(&Plan, &mut Report) -> Result<()>) -> Result<bool> {
    let plan = Plan::new(how.quick, how.dir.clone());
    match inside::directory() {
        // The parent process removes the directory, once nothing is mounted in it any more.
        Some(dir) => measure_as(&Plan { dir, ..plan }, how.json, figures),
        None => enter(how),
    }
}

/// Runs this command in its own namespaces.
fn enter(how: &CommonArguments) -> Result<bool> {
    let plan = Plan::new(how.quick, how.dir.clone());
    runtime()?.block_on(inside::run(&plan.dir))
}

/// The same for figures whose servers have runtimes of their own, which cannot start inside of another one.
fn measure_blocking(how: &CommonArguments, figures: impl FnOnce(&Plan, &mut Report) -> Result<()>) -> Result<bool> {
    let mut report = Report::new(how.json);
    figures(&Plan::new(how.quick, how.dir.clone()), &mut report)?;
    Ok(report.finish())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// True if every figure reached its required ratio.
fn measure(how: &CommonArguments, figures: impl AsyncFnOnce(&Plan, &mut Report) -> Result<()>) -> Result<bool> {
    let plan = Plan::new(how.quick, how.dir.clone());
    let result = measure_as(&plan, how.json, figures);
    std::fs::remove_dir_all(&plan.dir)?;
    result
}

fn measure_as(plan: &Plan, json: bool, figures: impl AsyncFnOnce(&Plan, &mut Report) -> Result<()>) -> Result<bool> {
    let mut report = Report::new(json);
    std::fs::create_dir_all(&plan.dir)?;
    let result = runtime()?.block_on(figures(plan, &mut report));
    result?;
    Ok(report.finish())
}
