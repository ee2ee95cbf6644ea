//! Devices of device plugins: plugins register at a socket, list their devices, and are called when a container gets
//! some.

mod inventory;
mod plugins;
#[cfg(test)]
mod tests;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::Tree;
use client::Metrics;
use cri::grpc::Channel;
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};

use super::numa::{Hints, Mask};
use super::{checkpoint, metrics, requests};
use crate::model::pod;
use crate::node::status_input;
use crate::volumes::csi::wire::RpcError;
pub(crate) use inventory::DeviceAllocation;
use inventory::{Ids, Inventory};
pub use plugins::Registration;

/// A connected plugin.
#[derive(Clone)]
struct Plugin {
    channel: Channel,
    options: wire::Options,
    /// Distinguishes plugins that registered for the same resource.
    number: u64,
}

#[derive(Default)]
struct State {
    inventory: Inventory,
    plugins: BTreeMap<String, Plugin>,
    /// Resources that were there once, and are not any more.
    removed: BTreeSet<String>,
    registered: u64,
}

/// A checkpoint of devices that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {source}", .file.display())]
    Checkpoint { file: PathBuf, source: checkpoint::ReadError },
    #[error("{}: {source}", .file.display())]
    Inventory { file: PathBuf, source: inventory::InventoryError },
}

/// Devices that a container does not get.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Choice(#[from] inventory::ChoiceError),
    #[error("unknown Device Plugin {0}")]
    UnknownPlugin(String),
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    Preferred(#[source] RpcError),
    #[error(transparent)]
    Allocate(RpcError),
    #[error("no containers return in allocation response")]
    EmptyResponse,
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(#[source] RpcError),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::WriteError),
}

pub(crate) struct Devices {
    dir: PathBuf,
    nodes: Vec<u32>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    state: Mutex<State>,
    /// Notified when the number of devices changes.
    changed: Notify,
    registrations: mpsc::Sender<Registration>,
    arrivals: tokio::sync::Mutex<mpsc::Receiver<Registration>>,
}

const FILE: &str = "kubelet_internal_checkpoint";
/// The number of pending registrations; further plugins have to retry.
const WAITING: usize = 64;

impl Devices {
    /// Restores the assignments from before this process started.
    pub(crate) fn open(
        dir: PathBuf,
        nodes: Vec<u32>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Devices, OpenError> {
        let file = dir.join(FILE);
        let kept = checkpoint::read(&file).map_err(|source| OpenError::Checkpoint { file: file.clone(), source })?;
        let kept = kept.map(|kept| Inventory::read(&kept, clock.now().seconds)).transpose();
        let inventory = kept.map_err(|source| OpenError::Inventory { file, source })?.unwrap_or_default();
        let (registrations, arrivals) = mpsc::channel(WAITING);
        Ok(Devices {
            dir,
            nodes,
            clock,
            metrics,
            state: Mutex::new(State { inventory, ..State::default() }),
            changed: Notify::new(),
            registrations,
            arrivals: tokio::sync::Mutex::new(arrivals),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn now(&self) -> i64 {
        self.clock.now().seconds
    }

    fn save(&self, state: &State) -> Result<(), checkpoint::WriteError> {
        checkpoint::write(&self.dir.join(FILE), state.inventory.to_checkpoint())
    }

    /// The registered resources that a container requests.
    fn requested_devices(&self, spec: &Tree) -> BTreeMap<String, usize> {
        let state = self.state();
        let mut desired = requests::devices(spec);
        desired.retain(|resource, _| state.inventory.resources.contains_key(resource));
        desired
    }

    /// The registered resources.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state().inventory.resources.keys().cloned().collect()
    }

    pub(crate) fn are_wanted(&self, pod: &Tree) -> bool {
        requests::containers(pod).any(|spec| !self.requested_devices(spec).is_empty())
    }

    pub(crate) fn hints(&self, pod: &Tree, spec: &Tree) -> Hints {
        let desired = self.requested_devices(spec);
        let state = self.state();
        let hint = |(resource, desired): (String, usize)| {
            let has = state.inventory.ids(pod::uid(pod), spec.str("name"), &resource);
            let reusable = state.inventory.reusable(pod, &resource);
            let hints = state.inventory.hints(&self.nodes, &resource, has.as_ref(), &reusable, desired);
            (resource, hints)
        };
        desired.into_iter().map(hint).collect()
    }

    /// For the pod as a whole.
    pub(crate) fn pod_hints(&self, pod: &Tree) -> Hints {
        let amounts =
            |spec: &Tree| self.requested_devices(spec).into_iter().map(|(name, count)| (name, count as u64)).collect();
        let desired = requests::at_once_by_name(pod, amounts);
        let state = self.state();
        let hint = |(resource, desired): (String, u64)| {
            let ids = requests::containers(pod)
                .filter_map(|spec| state.inventory.ids(pod::uid(pod), spec.str("name"), &resource));
            let has: Ids = ids.flatten().collect();
            let has = Some(has).filter(|has| !has.is_empty());
            let desired = usize::try_from(desired).unwrap_or(usize::MAX);
            let hints = state.inventory.hints(&self.nodes, &resource, has.as_ref(), &Ids::new(), desired);
            (resource, hints)
        };
        desired.into_iter().map(hint).collect()
    }

    /// Assigns a container its devices. Its plugins are called one after the other; only one pod is admitted at a time.
    pub(crate) async fn allocate(&self, pod: &Tree, spec: &Tree, near: Option<Mask>) -> Result<(), DeviceError> {
        let (uid, name) = (pod::uid(pod), spec.str("name"));
        for (resource, desired) in self.requested_devices(spec) {
            let choice = self.state().inventory.choose(pod, name, &resource, desired, near)?;
            let Some(choice) = choice else { continue };
            let plugin = self.state().plugins.get(&resource).cloned();
            let plugin = plugin.ok_or_else(|| DeviceError::UnknownPlugin(resource.clone()))?;
            let preferred = match choice
                .preferred_allocation_request()
                .filter(|_| plugin.options.get_preferred_allocation_available)
            {
                Some(question) => wire::preferred(&plugin.channel, question).await.map_err(DeviceError::Preferred)?,
                None => Default::default(),
            };
            let preferred = preferred.container_responses.into_iter().next().unwrap_or_default();
            let ids = choice.finish(&preferred.ids);
            let request = wire::ContainerAllocateRequest { ids: ids.iter().cloned().collect() };
            let request = wire::AllocateRequest { container_requests: vec![request] };
            let begun = tokio::time::Instant::now();
            let answer = wire::allocate(&plugin.channel, request).await;
            self.metrics.record(&metrics::ALLOCATIONS, &[&resource], begun.elapsed().as_secs_f64());
            let answer = answer.map_err(DeviceError::Allocate)?.container_responses.into_iter().next();
            let answer = answer.ok_or(DeviceError::EmptyResponse)?;
            let mut state = self.state();
            state.inventory.allocate(uid, name, &resource, &ids, answer);
            self.save(&state)?;
        }
        Ok(())
    }

    /// Calls the plugins that require it before each start of a container.
    pub(crate) async fn pre_start(&self, uid: &str, container: &str) -> Result<(), DeviceError> {
        let shares = self.state().inventory.of(uid, container).cloned().unwrap_or_default();
        for (resource, share) in shares {
            let plugin = self.state().plugins.get(&resource).cloned();
            let Some(plugin) = plugin.filter(|plugin| plugin.options.pre_start_required) else { continue };
            let request = wire::ContainerAllocateRequest { ids: share.devices.into_keys().collect() };
            let started = wire::pre_start(&plugin.channel, request).await;
            started.map_err(DeviceError::PreStart)?;
        }
        Ok(())
    }

    /// The devices of a container, by resource.
    pub(crate) fn of(&self, uid: &str, container: &str) -> BTreeMap<String, DeviceAllocation> {
        self.state().inventory.of(uid, container).cloned().unwrap_or_default()
    }

    /// All healthy devices, used or not.
    pub(crate) fn all(&self) -> Vec<(String, String, Vec<u32>)> {
        let state = self.state();
        let of = |(name, known): (&String, &inventory::Resource)| {
            let device = |(id, device): (&String, &inventory::Device)| {
                (name.clone(), id.clone(), device.nodes.clone().unwrap_or_default())
            };
            known.devices.iter().filter(|(_, device)| device.is_healthy).map(device).collect::<Vec<_>>()
        };
        state.inventory.resources.iter().flat_map(of).collect()
    }

    /// `allocatedResourcesStatus` of a container.
    pub(crate) fn health(&self, uid: &str, container: &str) -> Vec<Tree> {
        self.state().inventory.health(uid, container)
    }

    pub(crate) fn release(&self, uid: &str) {
        let mut state = self.state();
        if state.inventory.given.remove(uid).is_some() {
            self.save_quietly(&state);
        }
    }

    /// Releases the devices of unknown pods.
    pub(crate) fn keep(&self, is_known: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let before = state.inventory.given.len();
        state.inventory.given.retain(|uid, _| is_known(uid));
        if state.inventory.given.len() != before {
            self.save_quietly(&state);
        }
    }

    fn save_quietly(&self, state: &State) {
        if let Err(error) = self.save(state) {
            tracing::warn!(%error, "failed to write device checkpoint");
        }
    }

    /// The devices in the node's status, now.
    fn report(&self) -> (status_input::Devices, Option<i64>) {
        let now = self.now();
        let mut state = self.state();
        let gone = state.inventory.expire(now);
        if !gone.is_empty() {
            state.removed.extend(gone);
            self.save_quietly(&state);
        }
        (state.inventory.report(&state.removed), state.inventory.next_expiry().map(|at| at - now))
    }
}
