//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};

use crate::boot::{self, Up};

#[derive(Parser)]
#[command(name = "tiphys", about = "Kubernetes in one binary", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a whole cluster on this machine
    Up {
        /// Where everything is kept
        #[arg(long, default_value = "./data")]
        data_dir: PathBuf,
        /// The address to listen on
        #[arg(long, default_value = "127.0.0.1")]
        bind_address: IpAddr,
        #[arg(long, default_value_t = 6443)]
        port: u16,
        /// Where to write the kubeconfig [default: DATA_DIR/kubeconfig]
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
    },
    /// Shows the versions of this binary and of Kubernetes
    Version,
}

pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Version => {
            println!("tiphys {} (Kubernetes 1.37)", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Command::Up { data_dir, bind_address, port, kubeconfig } => {
            let kubeconfig = kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
            let up = Up { data_dir, address: bind_address, port, kubeconfig, config: server::Config::default() };
            run_up(&up)
        }
    }
}

fn run_up(up: &Up) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    runtime.block_on(async {
        let started = Instant::now();
        let running = match boot::up(up, |step| println!("  ✓ {step}")).await {
            Ok(running) => running,
            Err(error) => return fail(&error),
        };
        println!("\nThe cluster is ready after {} ms at https://{}\n", started.elapsed().as_millis(), running.address);
        println!("  export KUBECONFIG={}", up.kubeconfig.display());
        println!("  kubectl get namespaces\n\nctrl-c stops it; everything is kept in {}", up.data_dir.display());
        interrupted().await;
        println!("\nstopping");
        running.stop().await;
        ExitCode::SUCCESS
    })
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("tiphys: {error}");
    ExitCode::FAILURE
}

/// ctrl-c or a polite kill.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
