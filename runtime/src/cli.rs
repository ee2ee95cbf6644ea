//! `tiphys cri`: the runtime on a socket, for any kubelet and any CRI client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use rustix::fs::Access;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Context, Error, Result, refused};
use crate::images::registry::hosts::DEFAULT_DIRECTORIES;
use crate::images::{self, Images};
use crate::service::{NetworkOptions, Options, Service};

/// Serves the container runtime interface on a unix socket.
#[derive(Parser, Debug)]
#[command(name = "tiphys cri")]
struct Arguments {
    /// Where clients connect.
    #[arg(long, default_value = "/run/tiphys/cri.sock")]
    socket: PathBuf,
    /// Images and containers' writable layers.
    #[arg(long, default_value = "/var/lib/tiphys")]
    root: PathBuf,
    /// Records and sockets of what runs; a reboot ends it.
    #[arg(long, default_value = "/run/tiphys/runtime")]
    state: PathBuf,
    /// A directory with hosts and certificates of registries, in containerd's form; can be repeated.
    #[arg(long = "hosts-dir", default_values = DEFAULT_DIRECTORIES)]
    hosts: Vec<PathBuf>,
    /// A RuntimeClass handler and the OCI runtime's program that it means: `runc=/usr/sbin/runc`.
    #[arg(long = "handler", value_name = "NAME=PROGRAM")]
    handlers: Vec<String>,
    /// Where the configuration of the pod network is looked for.
    #[arg(long, default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Where plugins of the pod network are looked for.
    #[arg(long = "cni-bin-dir", default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dirs: Vec<PathBuf>,
    /// Nothing of the pod network that is built in: only what these directories have.
    #[arg(long)]
    cni_external_only: bool,
    /// Where results of the pod network are remembered.
    #[arg(long, default_value = "/var/lib/cni")]
    cni_cache_dir: PathBuf,
    /// The cgroup of the pods' shims.
    #[arg(long, default_value = "/tiphys-shims")]
    shim_cgroup: String,
    /// Where exec, attach and port-forward are served; a free port of loopback unless told.
    #[arg(long, default_value = "127.0.0.1:0")]
    streaming_address: SocketAddr,
}

/// Takes the arguments after the program's own name.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .at("starting")
        .and_then(|runtime| runtime.block_on(serve(arguments)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tiphys cri: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: Arguments) -> Result<()> {
    let handlers = handlers(&arguments.handlers)?;
    let hosts = images::Options { hosts: arguments.hosts, ..Default::default() };
    let images = Images::open(&arguments.root.join("images"), hosts)
        .map_err(|error| Error::Refused(format!("--root: opening the images: {}", error.chain())))?;
    let options = Options {
        root: arguments.root,
        state: arguments.state,
        handlers,
        shim_cgroup: arguments.shim_cgroup,
        network: NetworkOptions {
            conf_dir: arguments.cni_conf_dir,
            bin_dirs: arguments.cni_bin_dirs,
            cache_dir: arguments.cni_cache_dir,
            builtin: !arguments.cni_external_only,
        },
        streaming_address: arguments.streaming_address,
    };
    let service = Arc::new(Service::open(options, images).await?);
    let listener = listen(&arguments.socket)?;
    tracing::info!(socket = %arguments.socket.display(), "serving CRI");
    let mut terminate = signal(SignalKind::terminate()).at("waiting for signals")?;
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        served = cri::serve(listener, service.clone(), service) => served.at("serving")?,
    }
    // Pods run on: their shims need no agent.
    let _ = std::fs::remove_file(&arguments.socket);
    Ok(())
}

fn handlers(arguments: &[String]) -> Result<BTreeMap<String, PathBuf>> {
    let parse = |argument: &String| match argument.split_once('=') {
        Some((name, program)) if !name.is_empty() && Path::new(program).is_absolute() => {
            rustix::fs::access(program, Access::EXEC_OK).context(|| format!("--handler {argument:?}"))?;
            Ok((name.to_string(), PathBuf::from(program)))
        }
        _ => refused(format!("--handler {argument:?}: NAME=PROGRAM, an absolute path, is wanted")),
    };
    arguments.iter().map(parse).collect()
}

fn listen(socket: &Path) -> Result<UnixListener> {
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).context(|| format!("--socket: making {}", directory.display()))?;
    }
    let shown = socket.display();
    if let Ok(data) = std::fs::symlink_metadata(socket) {
        if !data.file_type().is_socket() {
            return refused(format!("--socket {shown}: something else is there"));
        }
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return refused(format!("--socket {shown}: another runtime serves it"));
        }
        // Nobody serves it any more: an agent that was killed has left it.
        let _ = std::fs::remove_file(socket);
    }
    let listener = UnixListener::bind(socket).context(|| format!("--socket {shown}"))?;
    // Whoever connects to it is root on this machine.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).context(|| format!("--socket {shown}"))?;
    Ok(listener)
}
