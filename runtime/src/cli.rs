//! `tiphys cri`: the container runtime on a socket, for any kubelet and any CRI client.

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

/// Serve the Container Runtime Interface (CRI) on a Unix socket.
#[derive(Parser, Debug)]
#[command(name = "tiphys cri")]
struct Arguments {
    /// The path of the socket.
    #[arg(long, default_value = "/run/tiphys/cri.sock")]
    socket: PathBuf,
    /// The directory of images and of containers' writable layers.
    #[arg(long, default_value = "/var/lib/tiphys")]
    root: PathBuf,
    /// The directory of records and sockets of running pods, which a reboot may clear.
    #[arg(long, default_value = "/run/tiphys/runtime")]
    state: PathBuf,
    /// A directory of registry host configurations and certificates, in containerd's format; can be repeated.
    #[arg(long = "hosts-dir", default_values = DEFAULT_DIRECTORIES)]
    hosts: Vec<PathBuf>,
    /// A RuntimeClass handler and the OCI runtime binary that it runs, such as `runc=/usr/sbin/runc`; can be repeated.
    #[arg(long = "handler", value_name = "NAME=PROGRAM")]
    handlers: Vec<String>,
    /// The directory of CNI network configurations.
    #[arg(long, default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// A directory of CNI plugin binaries; can be repeated.
    #[arg(long = "cni-bin-dir", default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dirs: Vec<PathBuf>,
    /// Do not use the built-in pod network and the built-in CNI plugins.
    #[arg(long)]
    cni_external_only: bool,
    /// The directory of cached CNI results.
    #[arg(long, default_value = "/var/lib/cni")]
    cni_cache_dir: PathBuf,
    /// The cgroup of the shims.
    #[arg(long, default_value = "/tiphys-shims")]
    shim_cgroup: String,
    /// The address that serves exec, attach and port-forward; by default a free port on loopback.
    #[arg(long, default_value = "127.0.0.1:0")]
    streaming_address: SocketAddr,
}

/// Runs the command with these arguments; the first one is the name of the program.
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
        .map_err(|error| Error::Refused(format!("--root: opening the image store: {}", error.chain())))?;
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
            names: Default::default(),
            cluster: Default::default(),
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
    // Pods keep running: their shims do not need this process.
    let _ = std::fs::remove_file(&arguments.socket);
    Ok(())
}

fn handlers(arguments: &[String]) -> Result<BTreeMap<String, PathBuf>> {
    let parse = |argument: &String| match argument.split_once('=') {
        Some((name, program)) if !name.is_empty() && Path::new(program).is_absolute() => {
            rustix::fs::access(program, Access::EXEC_OK).context(|| format!("--handler {argument:?}"))?;
            Ok((name.to_string(), PathBuf::from(program)))
        }
        _ => refused(format!("--handler {argument:?}: expected NAME=PROGRAM with an absolute path")),
    };
    arguments.iter().map(parse).collect()
}

fn listen(socket: &Path) -> Result<UnixListener> {
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).context(|| format!("--socket: creating {}", directory.display()))?;
    }
    let shown = socket.display();
    if let Ok(data) = std::fs::symlink_metadata(socket) {
        if !data.file_type().is_socket() {
            return refused(format!("--socket {shown}: the file exists and is not a socket"));
        }
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return refused(format!("--socket {shown}: another process is serving this socket"));
        }
        // A stale socket of a process that was killed.
        let _ = std::fs::remove_file(socket);
    }
    let listener = UnixListener::bind(socket).context(|| format!("--socket {shown}"))?;
    // A client of the socket can become root on this machine.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).context(|| format!("--socket {shown}"))?;
    Ok(listener)
}
