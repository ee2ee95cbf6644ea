//! Registers device plugins: they call a socket of this node, or have a socket in the directory of all plugins.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::Status;
use cri::grpc::{BoxFuture, ResponseFuture, dial, respond_unary, serve_calls};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

use super::inventory::read_device;
use super::wire::{self, RegisterRequest};
use super::{Devices, Plugin, metrics};
use crate::model::resources::is_extended;
use crate::node::status_input;
use crate::volumes::csi::wire::RpcError;

/// A registration of a plugin.
pub struct Registration {
    pub(crate) resource: String,
    pub(crate) socket: PathBuf,
    /// If None, the plugin is called for them.
    pub(crate) options: Option<wire::Options>,
}

/// A plugin that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistrationError {
    #[error("the ResourceName {0:?} is invalid")]
    ResourceName(String),
    #[error("too many plugins register at once")]
    TooMany,
    #[error("requested API version {0} is not supported by kubelet. Supported version is {version:?}", version = wire::VERSION)]
    Version(String),
}

/// Why a plugin's list has ended.
#[derive(Debug, thiserror::Error)]
enum Disconnect {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("it was replaced by another device plugin")]
    Replaced,
    #[error("the ListAndWatch stream ended")]
    Ended,
}

const PAUSE: Duration = Duration::from_secs(5);
/// The limit of plugins that are followed at once.
const MOST: usize = 1024;

impl Devices {
    /// Serves plugins forever. `show` gets the node's devices, `wake` the pods whose devices have changed.
    pub(crate) async fn run(
        self: Arc<Devices>,
        show: impl Fn(status_input::Devices) + Send + Sync,
        wake: impl Fn(&str) + Send + Sync + Clone + 'static,
    ) {
        tokio::select! {
            biased;
            () = self.clone().serve() => {}
            () = self.clone().follow_all(wake) => {}
            () = self.show(show) => {}
        }
    }

    /// Registers a plugin. A plugin may be registered through both sockets; the last registration counts.
    pub(crate) fn register(&self, registration: Registration) -> Result<(), RegistrationError> {
        if !is_extended(&registration.resource) || !api::validation::qualified_name(&registration.resource).is_empty() {
            return Err(RegistrationError::ResourceName(registration.resource));
        }
        self.metrics.count(&metrics::REGISTRATIONS, &[&registration.resource]);
        self.registrations.try_send(registration).map_err(|_| RegistrationError::TooMany)
    }

    /// Registers a plugin whose socket was found.
    pub(crate) fn register_socket(
        &self,
        resource: &str,
        socket: &Path,
        versions: &[String],
    ) -> Result<(), RegistrationError> {
        if !versions.iter().any(|version| version == wire::VERSION) {
            return Err(RegistrationError::Version(format!("{versions:?}")));
        }
        self.register(Registration { resource: resource.to_string(), socket: socket.to_path_buf(), options: None })
    }

    async fn serve(self: Arc<Devices>) {
        loop {
            let served = match listen(&self.dir) {
                Ok(listener) => {
                    let devices = self.clone();
                    let answer = move |request: http::Request<cri::grpc::Body>| answer(&devices, request);
                    serve_calls(listener, Arc::new(answer)).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::warn!(%error, dir = %self.dir.display(), "failed to serve device plugin registration");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn follow_all(self: Arc<Devices>, wake: impl Fn(&str) + Send + Sync + Clone + 'static) {
        let mut arrivals = self.arrivals.lock().await;
        let mut followed = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = followed.join_next() => {}
                arrival = arrivals.recv(), if followed.len() < MOST => {
                    let Some(arrival) = arrival else { return };
                    followed.spawn(self.clone().follow(arrival, wake.clone()));
                }
            }
        }
    }

    /// One plugin, from its registration until it disconnects or is replaced.
    async fn follow(
        self: Arc<Devices>,
        registration: Registration,
        wake: impl Fn(&str) + Send + Sync + Clone + 'static,
    ) {
        let Registration { resource, socket, options } = registration;
        let channel = dial(&socket);
        let options = match options {
            Some(options) => Ok(options),
            None => wire::options(&channel, wire::Empty {}).await,
        };
        let number = match options {
            Ok(options) => self.install(&resource, Plugin { channel: channel.clone(), options, number: 0 }),
            Err(error) => return tracing::warn!(resource, %error, "failed to get device plugin options"),
        };
        tracing::info!(resource, socket = %socket.display(), "device plugin registered");
        let why = self.watch_devices(&resource, number, &channel, &wake).await;
        tracing::info!(resource, %why, "device plugin disconnected");
        let mut state = self.state();
        if state.plugins.get(&resource).is_some_and(|plugin| plugin.number == number) {
            state.plugins.remove(&resource);
            let affected = state.inventory.mark_disconnected(&resource, self.now());
            drop(state);
            affected.iter().for_each(|uid| wake(uid));
            self.changed.notify_one();
        }
    }

    fn install(&self, resource: &str, plugin: Plugin) -> u64 {
        let mut state = self.state();
        state.registered += 1;
        let number = state.registered;
        state.plugins.insert(resource.to_string(), Plugin { number, ..plugin });
        state.removed.remove(resource);
        let is_new = !state.inventory.resources.contains_key(resource);
        state.inventory.resources.entry(resource.to_string()).or_default().silent_since = None;
        if is_new {
            self.save_quietly(&state);
        }
        number
    }

    /// Watches the devices of a plugin; returns why the watch ended.
    async fn watch_devices(
        &self,
        resource: &str,
        number: u64,
        channel: &cri::grpc::Channel,
        wake: &(impl Fn(&str) + Send + Sync),
    ) -> Disconnect {
        let mut lists = match wire::list_and_watch(channel).await {
            Ok(lists) => lists,
            Err(error) => return error.into(),
        };
        while let Some(list) = lists.next().await {
            let list = match list {
                Ok(list) => list,
                Err(status) => return RpcError::from(status).into(),
            };
            let devices: BTreeMap<_, _> =
                list.devices.iter().map(|device| (device.id.clone(), read_device(device))).collect();
            let mut state = self.state();
            if state.plugins.get(resource).is_none_or(|plugin| plugin.number != number) {
                return Disconnect::Replaced;
            }
            let affected = state.inventory.update(resource, devices);
            drop(state);
            affected.iter().for_each(|uid| wake(uid));
            self.changed.notify_one();
        }
        Disconnect::Ended
    }

    async fn show(&self, show: impl Fn(status_input::Devices)) {
        loop {
            let (report, next) = self.report();
            show(report);
            // A clock that jumps must not block the task forever.
            let pause = next.map_or(u64::MAX, |seconds| seconds.max(1).unsigned_abs());
            let _ = tokio::time::timeout(Duration::from_secs(pause.min(3600)), self.changed.notified()).await;
        }
    }
}

/// Creates the socket. Removes the sockets of plugins, which is how plugins notice that they have to register again.
fn listen(dir: &Path) -> std::io::Result<UnixListener> {
    crate::volumes::create_dirs(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            std::fs::remove_file(entry.path())?;
        }
    }
    UnixListener::bind(dir.join("kubelet.sock"))
}

fn answer(devices: &Arc<Devices>, request: http::Request<cri::grpc::Body>) -> ResponseFuture {
    let devices = devices.clone();
    match request.uri().path() {
        wire::REGISTER => respond_unary(request, move |message: RegisterRequest| -> BoxFuture<'static, wire::Empty> {
            let result = accept(&devices, message).map(|()| wire::Empty {});
            Box::pin(async move { result.map_err(|error| Status::unknown(error.to_string())) })
        }),
        path => {
            let status = Status::unimplemented(format!("unknown method {path}"));
            Box::pin(async move { status.into_http() })
        }
    }
}

fn accept(devices: &Devices, message: RegisterRequest) -> Result<(), RegistrationError> {
    if message.version != wire::VERSION {
        return Err(RegistrationError::Version(format!("{:?}", message.version)));
    }
    devices.register(Registration {
        resource: message.resource_name,
        socket: devices.dir.join(message.endpoint),
        options: Some(message.options.unwrap_or_default()),
    })
}
