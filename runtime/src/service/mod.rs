//! The CRI service, implemented with shims, images and the pod network.

mod client;
mod containers;
mod convert;
mod devices;
mod exec;
pub mod fault;
mod images;
mod lifecycle;
mod lists;
mod metrics;
mod network;
mod pulls;
mod records;
mod recovery;
mod runtime;
mod sandboxes;
mod state;
mod stats;
mod streaming;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::{ContainerEventResponse, ContainerEventType, Status};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::broadcast;

use self::streaming::Streaming;
use crate::capabilities;
use crate::error::{Context, Error, Result, refused};
use crate::images::Images;
use crate::plan::Host;
use crate::private;
use crate::shim::log::Timestamp;
use crate::sys;
use crate::zygote::Zygote;
use cgroup::Hierarchies;
use network::Network;
use pulls::Pulls;
use state::{Container, Sandbox, Table};

pub(crate) use exec::ExecStreams;
pub use network::NetworkOptions;

/// The configuration of the service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of images and containers' writable layers, which must survive a reboot.
    pub root: PathBuf,
    /// The directory of sockets and records of running pods, which a reboot may clear.
    pub state: PathBuf,
    /// OCI runtime binaries of RuntimeClass handlers, by the handlers' names.
    pub handlers: BTreeMap<String, PathBuf>,
    /// The cgroup of the shims, outside of the runtime's own cgroup.
    pub shim_cgroup: String,
    /// The pod network.
    pub network: NetworkOptions,
    /// The address that serves exec, attach and port-forward.
    pub streaming_address: std::net::SocketAddr,
}

/// The container runtime. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

pub(crate) struct Inner {
    options: Options,
    host: Host,
    cgroups: Hierarchies,
    zygote: Zygote,
    images: Images,
    pulls: Pulls,
    network: Network,
    sandboxes: Table<Sandbox>,
    containers: Table<Container>,
    /// Names in use, so that a repeated request does not create a second pod.
    names: stdx::sync::Mutex<BTreeMap<String, String>>,
    events: broadcast::Sender<ContainerEventResponse>,
    streaming: Streaming,
    /// The default seccomp filters that this process has written, by capabilities.
    filters: stdx::sync::Mutex<BTreeSet<u64>>,
    /// Logs ignored SELinux options once.
    selinux_ignored: std::sync::Once,
    /// The exclusive lock of the state directory.
    _lock: File,
}

/// The number of events that are buffered for a slow client, which gets an error if it missed some.
const MAX_EVENTS: usize = 1024;

impl Service {
    /// Opens the service and recovers the pods that an earlier process left running.
    pub async fn open(options: Options, images: Images) -> Result<Service> {
        let state = &options.state;
        private::ensure_dir(state).context(|| format!("creating {}", state.display()))?;
        private::ensure_dir(&state.join("sandboxes")).context(|| format!("creating {}", state.display()))?;
        let lock = lock(&options.state)?;
        let cgroups = Hierarchies::detect()?;
        let inner = Inner {
            host: host(&cgroups)?,
            cgroups,
            zygote: Zygote::start(&options.shim_cgroup)?,
            images,
            pulls: Pulls::default(),
            network: Network::open(&options)?,
            sandboxes: Table::default(),
            containers: Table::default(),
            names: Default::default(),
            events: broadcast::channel(MAX_EVENTS).0,
            streaming: Streaming::start(options.streaming_address)
                .await
                .context(|| format!("serving streams at {}", options.streaming_address))?,
            options,
            filters: Default::default(),
            selinux_ignored: std::sync::Once::new(),
            _lock: lock,
        };
        warn_missing_capabilities(&inner.host);
        let service = Service(Arc::new(inner));
        service.0.streaming.serve(service.clone());
        service.recover().await?;
        Ok(service)
    }

    /// Ends the zygote, so that its cgroup can be removed. No pod can be started after that.
    pub fn end_zygote(&self) {
        self.0.zygote.end();
    }

    fn sandbox(&self, id: &str) -> std::result::Result<Arc<Sandbox>, Status> {
        let not_found = || Status::not_found(format!("sandbox {id:?}: not found"));
        self.0.sandboxes.find(id).ok_or_else(not_found)
    }

    fn container(&self, id: &str) -> std::result::Result<Arc<Container>, Status> {
        let not_found = || Status::not_found(format!("container {id:?}: not found"));
        self.0.containers.find(id).ok_or_else(not_found)
    }

    fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.0.containers.all().into_iter().filter(|c| c.sandbox.id == sandbox).collect()
    }

    fn directory(&self, sandbox: &str) -> PathBuf {
        self.0.options.state.join("sandboxes").join(sandbox)
    }

    /// Reserves a name for an ID. Fails if another ID has it.
    fn reserve(&self, name: &str, id: &str) -> Result<()> {
        let mut names = self.0.names.lock();
        match names.get(name) {
            Some(other) if other != id => refused(format!("name {name:?} is reserved for {other:?}")),
            _ => {
                names.insert(name.to_string(), id.to_string());
                Ok(())
            }
        }
    }

    fn release_names(&self, id: &str) {
        self.0.names.lock().retain(|_, owner| owner != id);
    }

    fn publish(&self, id: &str, sandbox: &Arc<Sandbox>, kind: ContainerEventType) {
        if self.0.events.receiver_count() == 0 {
            return;
        }
        let _ = self.0.events.send(ContainerEventResponse {
            container_id: id.into(),
            container_event_type: kind as i32,
            created_at: Timestamp::now().0,
            pod_sandbox_status: Some(convert::sandbox_status(&sandbox.record())),
            containers_statuses: self.containers_of(&sandbox.id).iter().map(|c| convert::container_status(c)).collect(),
        });
    }
}

/// Two runtimes with the same state directory would both manage the same pods. The file contains the owner's pid.
fn lock(state: &Path) -> Result<File> {
    let path = state.join("lock");
    let mut options = File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .read(true)
        .mode(0o600)
        .open(&path)
        .context(|| format!("creating {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let id = std::process::id().to_string();
            let written = file.set_len(0).and_then(|()| std::io::Write::write_all(&mut &file, id.as_bytes()));
            written.context(|| format!("writing {}", path.display()))?;
            Ok(file)
        }
        Err(_) => {
            let owner = std::fs::read_to_string(&path).unwrap_or_default();
            let owner = if owner.is_empty() { String::new() } else { format!(" (process {owner})") };
            let state = state.display();
            refused(format!(
                "another tiphys{owner} uses the state directory {state}: stop it first, or use another directory"
            ))
        }
    }
}

/// Runs blocking work outside of the async worker threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Refused(format!("a task failed: {error}")))
}

fn host(cgroups: &Hierarchies) -> Result<Host> {
    let kernel = |path: &str| Path::new(path).exists();
    Ok(Host {
        capabilities: sys::capget().at("reading capabilities")?.permitted,
        apparmor: kernel("/sys/kernel/security/apparmor"),
        selinux: kernel("/sys/fs/selinux/enforce"),
        unified_cgroups: cgroups.unified_only(),
    })
}

/// Logs once, instead of for every pod, which capabilities are missing on this machine.
fn warn_missing_capabilities(host: &Host) {
    let resource = capabilities::bit("SYS_RESOURCE").unwrap_or_default();
    if host.capabilities & resource == 0 {
        let score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        tracing::warn!(
            oom_score_adj = score.trim(),
            "CAP_SYS_RESOURCE is missing: the oom_score_adj of pods cannot be lowered below the runtime's own"
        );
    }
}

/// The status of a failed call.
fn status(error: Error) -> Status {
    match error {
        Error::NotFound(text) => Status::not_found(text),
        other => Status::unknown(other.to_string()),
    }
}

/// A new ID: 32 random bytes in hexadecimal, as in other runtimes.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .at("generating an id")?;
    }
    Ok(stdx::hex::encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<stdx::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs a function, and returns what it logs.
    fn logged(work: impl FnOnce()) -> String {
        let log = Log::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        String::from_utf8(written.0.lock().clone()).expect("text")
    }

    #[test]
    fn a_missing_capability_is_warned_about_once() {
        let resource = capabilities::bit("SYS_RESOURCE").expect("a capability");
        let warnings = |capabilities: u64| {
            let host = Host { capabilities, ..Host::default() };
            logged(|| warn_missing_capabilities(&host)).matches("oom_score_adj of pods cannot be lowered").count()
        };
        assert_eq!((warnings(0), warnings(!resource)), (1, 1));
        assert_eq!((warnings(resource), warnings(u64::MAX)), (0, 0));
    }
}
