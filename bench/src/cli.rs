//! The command line of the benchmark.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::figure::Report;
use crate::figures::{self, Plan};
use crate::{Result, bare};

#[derive(Parser)]
#[command(name = "tiphys bench", about = "Measures the speed of this binary")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the API server; exit code 1 says that a figure missed what it must reach
    Api {
        /// A line of JSON for each figure
        #[arg(long)]
        json: bool,
        /// Shorter rounds and smaller clusters
        #[arg(long)]
        quick: bool,
        /// Where the data of the measured servers goes while it runs
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        dir: PathBuf,
        /// The groups of figures to measure, all by default
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(figures::names()))]
        names: Vec<String>,
    },
    /// Measures what stands before the store: authorization, audit, and fairness under a flood
    Gate {
        /// A line of JSON for each figure
        #[arg(long)]
        json: bool,
        /// Shorter and fewer rounds
        #[arg(long)]
        quick: bool,
        /// Where the data of the measured servers goes while it runs
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        dir: PathBuf,
    },
    /// Measures the control loops over a thousand fake nodes
    Controllers {
        /// A line of JSON for each figure
        #[arg(long)]
        json: bool,
        /// A tenth of everything
        #[arg(long)]
        quick: bool,
        /// Where the data of the measured servers goes while it runs
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        dir: PathBuf,
    },
    /// A tenant that asks as much as it can
    #[command(hide = true)]
    Flood { address: SocketAddr, path: String, token: String },
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
        Command::Api { json, quick, dir, names } => api(json, Plan::new(quick, dir), &names),
        Command::Gate { json, quick, dir } => gate(json, Plan::new(quick, dir)),
        Command::Controllers { json, quick, dir } => controllers(json, quick, Plan::new(quick, dir)),
        Command::Flood { address, path, token } => runtime()
            .and_then(|runtime| runtime.block_on(figures::gate::send_flood(address, &path, &token)))
            .map(|()| true),
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

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// True if every figure reached what it must.
fn api(json: bool, plan: Plan, names: &[String]) -> Result<bool> {
    let mut report = Report::new(json);
    std::fs::create_dir_all(&plan.dir)?;
    let result = runtime()?.block_on(figures::run(&plan, names, &mut report));
    std::fs::remove_dir_all(&plan.dir)?;
    result?;
    Ok(report.finish())
}

fn gate(json: bool, plan: Plan) -> Result<bool> {
    let mut report = Report::new(json);
    std::fs::create_dir_all(&plan.dir)?;
    let result = runtime()?.block_on(figures::gate::run(&plan, &mut report));
    std::fs::remove_dir_all(&plan.dir)?;
    result?;
    Ok(report.finish())
}

fn controllers(json: bool, quick: bool, plan: Plan) -> Result<bool> {
    let mut report = Report::new(json);
    std::fs::create_dir_all(&plan.dir)?;
    let result = runtime()?.block_on(figures::controllers::run(quick, &plan, &mut report));
    std::fs::remove_dir_all(&plan.dir)?;
    result?;
    Ok(report.finish())
}
