//! Drivers register with a socket in a directory, and are deregistered when it disappears.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use client::Client;
use client::files::Files;
use stdx::backoff::Backoff;

use super::wire::{self, Empty, RegistrationStatus};
use super::{Csi, Driver, node_info};
use crate::volumes::execute::create_dirs;

const KIND: &str = "CSIPlugin";
const DEVICES: &str = "DevicePlugin";
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);
/// Sockets that are called at a time; more wait.
const MOST_CALLS: usize = 64;

/// Sockets by path, with inode and time: a socket that was created again is another one.
type SocketStamps = BTreeMap<PathBuf, (u64, i64)>;

/// Registers a device plugin: its resource, its socket and its supported versions.
pub(crate) type DevicePluginHandler =
    dyn Fn(&str, &Path, &[String]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// A plugin that is not registered.
#[derive(Debug, thiserror::Error)]
enum RegistrationError {
    #[error(transparent)]
    Rpc(#[from] wire::RpcError),
    #[error(transparent)]
    NodeInfo(#[from] node_info::NodeInfoError),
    #[error("the driver has no name")]
    NoName,
    #[error("validation failed for CSI Driver {name}: none of the versions specified {versions:?} are supported")]
    Versions { name: String, versions: Vec<String> },
    #[error(transparent)]
    Devices(Box<dyn Error + Send + Sync>),
}

/// The dependencies of registration: the client for the node's objects, and a function that wakes waiting pods.
pub(crate) struct RegistrationContext<'a> {
    pub(crate) client: &'a Client,
    pub(crate) node: &'a str,
    pub(crate) wake: &'a (dyn Fn(&str) + Send + Sync),
    pub(crate) devices: &'a DevicePluginHandler,
}

/// The name of a driver; None if the socket belongs to no CSI driver.
type RegistrationResult = Result<Option<String>, RegistrationError>;

/// Sockets that are called concurrently: one that does not respond blocks no other.
#[derive(Default)]
struct Calls<'a>(Vec<Call<'a>>);

struct Call<'a> {
    socket: PathBuf,
    seen: (u64, i64),
    work: Pin<Box<dyn Future<Output = RegistrationResult> + Send + 'a>>,
}

/// A call that has ended.
struct CallResult {
    socket: PathBuf,
    seen: (u64, i64),
    result: RegistrationResult,
}

impl Calls<'_> {
    /// The first call that ends; pending forever without calls.
    async fn next(&mut self) -> CallResult {
        std::future::poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(result) = self.0[at].work.as_mut().poll(context) {
                    let Call { socket, seen, .. } = self.0.swap_remove(at);
                    return Poll::Ready(CallResult { socket, seen, result });
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Sockets that were called, and the drivers that responded.
#[derive(Default)]
struct RegistryState {
    sockets: SocketStamps,
    drivers: BTreeMap<PathBuf, String>,
    /// Sockets that are not called again until something changes, or for a while.
    failed: BTreeSet<PathBuf>,
    /// The CSINode exists, even without drivers.
    is_shown: bool,
}

impl RegistryState {
    fn has_failed(&self) -> bool {
        !self.is_shown || !self.failed.is_empty()
    }

    fn called(&mut self, done: CallResult) {
        let CallResult { socket, seen, result } = done;
        match result {
            Ok(driver) => self.add_socket(socket, seen, driver),
            Err(error) => {
                tracing::warn!(socket = %socket.display(), %error, "failed to register CSI driver");
                self.failed.insert(socket);
            }
        }
    }

    fn add_socket(&mut self, socket: PathBuf, seen: (u64, i64), driver: Option<String>) {
        if let Some(driver) = driver {
            self.drivers.insert(socket.clone(), driver);
        }
        self.sockets.insert(socket, seen);
    }

    /// Removes sockets that have disappeared. Returns their drivers.
    fn remove_missing_sockets(&mut self, found: &SocketStamps) -> Vec<String> {
        self.sockets.retain(|socket, seen| found.get(socket) == Some(seen));
        let gone: Vec<PathBuf> =
            self.drivers.keys().filter(|socket| !self.sockets.contains_key(*socket)).cloned().collect();
        gone.iter().filter_map(|socket| self.drivers.remove(socket)).collect()
    }
}

impl Csi {
    /// Follows the directory of sockets for ever.
    pub(crate) async fn run(&self, registration: &RegistrationContext<'_>) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            if let Err(error) = self.follow(registration).await {
                tracing::warn!(%error, "failed to watch the plugin registration directory");
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn follow(&self, registration: &RegistrationContext<'_>) -> io::Result<()> {
        let directory = self.registry();
        create_dirs(&directory)?;
        let watch = Files::watch(std::slice::from_ref(&directory))?;
        let (mut known, mut calls) = (RegistryState::default(), Calls::default());
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut pause = backoff.next_pause();
        loop {
            self.sync_sockets(registration, &directory, &mut known, &mut calls).await?;
            // Failed calls are retried; all else waits for a change of the directory.
            tokio::select! {
                () = watch.changed() => known.failed.clear(),
                done = calls.next() => known.called(done),
                () = tokio::time::sleep(pause), if known.has_failed() => {
                    known.failed.clear();
                    pause = backoff.next_pause();
                    continue;
                }
            }
            if !known.has_failed() {
                backoff.reset();
                pause = backoff.next_pause();
            }
        }
    }

    /// Deregisters drivers whose sockets have disappeared and calls new sockets.
    async fn sync_sockets<'a>(
        &'a self,
        registration: &'a RegistrationContext<'_>,
        directory: &Path,
        known: &mut RegistryState,
        calls: &mut Calls<'a>,
    ) -> io::Result<()> {
        known.is_shown = known.is_shown || node_info::initialize(registration.client, registration.node).await.is_ok();
        let found = sockets(directory)?;
        for name in known.remove_missing_sockets(&found) {
            self.deregister(registration, &name).await;
        }
        calls.0.retain(|call| found.get(&call.socket) == Some(&call.seen));
        for (socket, seen) in found {
            let is_called = calls.0.len() >= MOST_CALLS || calls.0.iter().any(|call| call.socket == socket);
            if is_called || known.sockets.contains_key(&socket) || known.failed.contains(&socket) {
                continue;
            }
            let at = socket.clone();
            let work = Box::pin(async move { self.register(registration, &at).await });
            calls.0.push(Call { socket, seen, work });
        }
        Ok(())
    }

    async fn register(&self, registration: &RegistrationContext<'_>, socket: &Path) -> RegistrationResult {
        let channel = cri::grpc::dial(socket);
        let info = wire::get_info(&channel, Empty {}).await?;
        let endpoint = if info.endpoint.is_empty() { socket.to_path_buf() } else { PathBuf::from(&info.endpoint) };
        let result = match info.kind.as_str() {
            KIND => match check(&info.name, &info.supported_versions) {
                Ok(()) => self.install(registration, &info.name, &endpoint).await,
                Err(error) => Err(error),
            },
            DEVICES => (registration.devices)(&info.name, &endpoint, &info.supported_versions)
                .map_err(RegistrationError::Devices),
            kind => {
                tracing::info!(socket = %socket.display(), kind, "ignoring plugin of unknown type");
                return Ok(None);
            }
        };
        let error = result
            .as_ref()
            .err()
            .map(|error| format!("RegisterPlugin error -- plugin registration failed with err: {error}"));
        let status = RegistrationStatus { plugin_registered: result.is_ok(), error: error.unwrap_or_default() };
        wire::notify(&channel, status).await?;
        result.map(|()| Some(info.name).filter(|_| info.kind == KIND))
    }

    async fn install(
        &self,
        registration: &RegistrationContext<'_>,
        name: &str,
        endpoint: &Path,
    ) -> Result<(), RegistrationError> {
        let channel = cri::grpc::dial(endpoint);
        let info = wire::node_get_info(&channel, Empty {}).await?;
        let capabilities = wire::node_get_capabilities(&channel, Empty {}).await?;
        let capabilities =
            capabilities.capabilities.iter().filter_map(|of| of.rpc.as_ref()).map(|rpc| rpc.kind).collect();
        {
            // All drivers are in one object, which is read and written by one task at a time.
            let _alone = self.showing.lock().await;
            node_info::install(registration.client, registration.node, name, &info).await?;
        }
        self.add(name, Driver { channel, capabilities });
        // Wakes the pods that wait for the driver.
        for record in self.records().iter().filter(|record| record.driver == name) {
            (registration.wake)(&record.uid());
        }
        Ok(())
    }

    async fn deregister(&self, registration: &RegistrationContext<'_>, name: &str) {
        self.drop_driver(name);
        let _alone = self.showing.lock().await;
        if let Err(error) = node_info::uninstall(registration.client, registration.node, name).await {
            tracing::warn!(driver = name, %error, "failed to remove CSI driver from the node");
        }
    }
}

/// Upstream accepts any driver of version 1.
fn check(name: &str, versions: &[String]) -> Result<(), RegistrationError> {
    if name.is_empty() {
        return Err(RegistrationError::NoName);
    }
    if versions.iter().any(|version| version.trim_start_matches('v').split('.').next() == Some("1")) {
        return Ok(());
    }
    Err(RegistrationError::Versions { name: name.to_string(), versions: versions.to_vec() })
}

fn sockets(directory: &Path) -> io::Result<SocketStamps> {
    let mut found = SocketStamps::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let Ok(stat) = entry.metadata() else { continue };
        if stat.file_type().is_socket() && !hidden {
            found.insert(entry.path(), (stat.ino(), stat.ctime_nsec()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_drivers_of_version_1() {
        let check = |versions: &[&str]| check("d", &versions.iter().map(|v| v.to_string()).collect::<Vec<_>>()).is_ok();
        assert!(check(&["1.0.0"]) && check(&["0.3.0", "v1.2.0"]));
        assert!(!check(&[]) && !check(&["0.3.0"]) && !check(&["2.0.0", "10.0.0"]));
    }
}
