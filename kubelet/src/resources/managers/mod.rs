//! Exclusive resources of containers: CPUs, memory of NUMA nodes, devices. Assignments are decided when a pod is
//! admitted, kept on disk, and released when the pod has ended. The policies decide, as pure values; this module
//! carries the decisions out.

mod assignment;
pub(crate) mod checkpoint;
pub(crate) mod cpu;
pub mod devices;
mod machine;
pub(crate) mod memory;
mod metrics;
pub(crate) mod numa;
pub(crate) mod pod_resources;
mod reconcile;
pub(crate) mod requests;
mod restore;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod topology;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::Tree;
use client::Metrics;
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::config::Config;
use crate::config::topology::{Policy, Scope};
use crate::model::cpuset::CpuSet;
use crate::model::pod;
use crate::model::problem::Problem;
pub use assignment::Assignment;
use devices::Devices;
use machine::Machine;
use numa::{Hint, Hints};
use topology::Merger;

/// Why a pod cannot have its resources.
#[derive(Debug)]
pub(crate) enum Rejection {
    Unexpected(AllocationError),
    Smt(cpu::SmtError),
    Topology,
}

/// An allocation that has failed, although the scheduler has found enough on the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AllocationError {
    #[error(transparent)]
    Cpu(#[from] cpu::NotEnough),
    #[error(transparent)]
    Memory(#[from] memory::MemoryError),
    #[error(transparent)]
    Devices(#[from] devices::DeviceError),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::WriteError),
}

/// Managers that cannot start. The error names the field or the file that does not fit.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The machine has more NUMA nodes than the topology manager supports.
    #[error("topologyManagerPolicy: unsupported on machines with more than {0} NUMA Nodes")]
    NumaNodes(usize),
    /// The CPU manager's policy is not possible.
    #[error("cpuManagerPolicy: {0}")]
    Cpu(#[from] cpu::PolicyError),
    /// The memory manager's policy is not possible.
    #[error("memoryManagerPolicy: {0}")]
    Memory(#[from] memory::PolicyError),
    /// A checkpoint does not fit.
    #[error(transparent)]
    Restore(#[from] restore::RestoreError),
    /// The devices' checkpoint cannot be read.
    #[error(transparent)]
    Devices(#[from] devices::OpenError),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::WriteError),
}

impl Rejection {
    pub(crate) fn problem(self) -> Problem {
        match self {
            Rejection::Unexpected(why) => Problem {
                reason: "UnexpectedAdmissionError".into(),
                message: format!("Allocate failed due to {why}, which is unexpected"),
            },
            Rejection::Smt(error) => Problem { reason: "SMTAlignmentError".into(), message: error.to_string() },
            Rejection::Topology => Problem {
                reason: "TopologyAffinityError".into(),
                message: "Resources cannot be allocated with Topology locality".to_string(),
            },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ManagerState {
    cpus: cpu::State,
    memory: memory::State,
}

pub(crate) struct Managers {
    config: Arc<Config>,
    machine: Arc<Machine>,
    cpu: Option<cpu::Policy>,
    memory: Option<memory::Policy>,
    held: Mutex<ManagerState>,
    pub(crate) devices: Arc<Devices>,
    /// One pod is admitted at a time, so that no resource is assigned twice.
    turn: tokio::sync::Mutex<()>,
    /// Notified when the shared CPUs change.
    moved: Notify,
    /// The CPUs of running containers, as last sent to the runtime.
    applied: Mutex<BTreeMap<String, String>>,
    metrics: Metrics,
}

impl Managers {
    /// Restores the assignments from before this process started. An error names the field or the file that does not
    /// fit.
    pub(crate) fn open(
        config: Arc<Config>,
        root: &Path,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Managers, OpenError> {
        let machine = Arc::new(machine::read(root));
        let pinning = &config.pinning;
        if pinning.topology != Policy::None && machine.nodes.len() > pinning.topology_options.most_nodes {
            return Err(OpenError::NumaNodes(pinning.topology_options.most_nodes));
        }
        let cpu = pinning.cpu_static.then(|| restore::cpu_policy(&config, &machine)).transpose()?;
        let memory = pinning.memory_static.then(|| restore::memory_policy(&config, &machine)).transpose()?;
        let held = ManagerState {
            cpus: restore::restore_cpus(&config, cpu.as_ref())?,
            memory: restore::restore_memory(&config, memory.as_ref())?,
        };
        let devices =
            Devices::open(config.root_dir.join("device-plugins"), machine.node_numbers(), clock, metrics.clone())?;
        let managers = Managers {
            config,
            machine,
            cpu,
            memory,
            held: Mutex::new(held),
            devices: Arc::new(devices),
            turn: Default::default(),
            moved: Notify::new(),
            applied: Mutex::default(),
            metrics,
        };
        managers.save(&managers.held())?;
        managers.measure(&managers.held());
        Ok(managers)
    }

    fn held(&self) -> MutexGuard<'_, ManagerState> {
        self.held.lock()
    }

    fn save(&self, held: &ManagerState) -> Result<(), checkpoint::WriteError> {
        if self.cpu.is_some() {
            checkpoint::write(&restore::cpu_file(&self.config), held.cpus.to_checkpoint())?;
        }
        if let Some(policy) = &self.memory {
            checkpoint::write(&restore::memory_file(&self.config), policy.to_checkpoint(&held.memory))?;
        }
        Ok(())
    }

    /// Whether a pod needs exclusive resources. Most pods do not, and need not wait for their turn.
    fn are_wanted(&self, pod: &Tree) -> bool {
        let of_container = |spec: &Tree| {
            self.cpu.is_some() && requests::cpus(pod, spec) > 0
                || self.memory.is_some() && !requests::memory(pod, spec).is_empty()
        };
        requests::containers(pod).any(of_container) || self.devices.are_wanted(pod)
    }

    /// Assigns a pod everything that its containers request, or nothing.
    pub(crate) async fn admit(&self, pod: &Tree) -> Result<(), Problem> {
        if !self.are_wanted(pod) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let result = match self.allocate_all(pod).await {
            Ok(()) => self.save(&self.held()).map_err(|error| Rejection::Unexpected(error.into())),
            refused => refused,
        };
        self.measure(&self.held());
        self.moved.notify_one();
        result.map_err(|refusal| {
            self.release(pod::uid(pod));
            refusal.problem()
        })
    }

    async fn allocate_all(&self, pod: &Tree) -> Result<(), Rejection> {
        let policy = self.config.pinning.topology;
        let whole = match (policy, self.config.pinning.scope) {
            (Policy::None, _) => Some(Hint::default()),
            (_, Scope::Pod) => Some(self.place(pod, None)?),
            (_, Scope::Container) => None,
        };
        for spec in requests::containers(pod) {
            let place = match whole {
                Some(place) => place,
                None => self.place(pod, Some(spec))?,
            };
            self.allocate(pod, spec, place)?;
            let devices = self.devices.allocate(pod, spec, place.affinity).await;
            devices.map_err(|error| Rejection::Unexpected(error.into()))?;
        }
        Ok(())
    }

    /// The NUMA nodes for a container or the whole pod.
    fn place(&self, pod: &Tree, spec: Option<&Tree>) -> Result<Hint, Rejection> {
        let mut providers: Vec<Hints> = vec![match spec {
            Some(spec) => self.devices.hints(pod, spec),
            None => self.devices.pod_hints(pod),
        }];
        let held = self.held();
        providers.extend(self.cpu.as_ref().map(|policy| match spec {
            Some(spec) => policy.hints(&held.cpus, pod, spec),
            None => policy.pod_hints(&held.cpus, pod),
        }));
        providers.extend(self.memory.as_ref().map(|policy| match spec {
            Some(spec) => policy.hints(&held.memory, pod, spec),
            None => policy.pod_hints(&held.memory, pod),
        }));
        drop(held);
        let pinning = &self.config.pinning;
        let merger = Merger { policy: pinning.topology, options: pinning.topology_options, machine: &self.machine };
        self.metrics.count(&metrics::TOPOLOGY_REQUESTS, &[]);
        let (place, is_good) = merger.merge(&providers);
        if is_good {
            return Ok(place);
        }
        self.metrics.count(&metrics::TOPOLOGY_ERRORS, &[]);
        Err(Rejection::Topology)
    }

    fn allocate(&self, pod: &Tree, spec: &Tree, place: Hint) -> Result<(), Rejection> {
        let mut held = self.held();
        if let Some(policy) = &self.cpu {
            let result = policy.allocate(&mut held.cpus, pod, spec, place.affinity);
            if requests::cpus(pod, spec) > 0 {
                self.count(&metrics::CPU_REQUESTS, &metrics::CPU_ERRORS, &result);
            }
            result?;
        }
        if let Some(policy) = &self.memory {
            let result = policy.allocate(&mut held.memory, pod, spec, place);
            if !requests::memory(pod, spec).is_empty() {
                self.count(&metrics::MEMORY_REQUESTS, &metrics::MEMORY_ERRORS, &result);
            }
            result?;
        }
        Ok(())
    }

    fn count(
        &self,
        requests: &'static client::Metric,
        errors: &'static client::Metric,
        result: &Result<(), Rejection>,
    ) {
        self.metrics.count(requests, &[]);
        if result.is_err() {
            self.metrics.count(errors, &[]);
        }
    }

    /// Restores missing assignments of a running pod, if possible.
    pub(crate) fn take(&self, pod: &Tree) {
        let before = self.held().clone();
        for spec in requests::containers(pod) {
            if let Err(refusal) = self.allocate(pod, spec, Hint::default()) {
                let (name, why) = (spec.str("name"), refusal.problem().message);
                tracing::warn!(
                    pod = pod::name(pod),
                    container = name,
                    why,
                    "failed to restore exclusive resources of running pod"
                );
            }
        }
        let is_same = *self.held() == before;
        if !is_same {
            self.after_change();
        }
    }

    fn after_change(&self) {
        let held = self.held();
        if let Err(error) = self.save(&held) {
            tracing::warn!(%error, "failed to write CPU and memory checkpoint");
        }
        self.measure(&held);
        self.moved.notify_one();
    }

    /// A pod has ended.
    pub(crate) fn release(&self, uid: &str) {
        self.devices.release(uid);
        let mut held = self.held();
        let had_cpus = held.cpus.release(uid);
        let had_memory = held.memory.release(uid);
        drop(held);
        if had_cpus || had_memory {
            self.after_change();
        }
    }

    /// Releases the assignments of unknown pods.
    pub(crate) fn keep(&self, is_known: impl Fn(&str) -> bool) {
        self.devices.keep(&is_known);
        let held = self.held();
        let uids: Vec<String> = held.cpus.given.keys().chain(held.memory.0.keys()).cloned().collect();
        drop(held);
        uids.iter().filter(|uid| !is_known(uid)).for_each(|uid| self.release(uid));
    }

    /// The CPUs of a container, exclusive or shared; empty without the static policy.
    pub(crate) fn cpus(&self, uid: &str, container: &str) -> CpuSet {
        let held = self.held();
        held.cpus.of(uid, container).unwrap_or(&held.cpus.shared).clone()
    }

    /// The exclusive CPUs of a container.
    pub(crate) fn own_cpus(&self, uid: &str, container: &str) -> CpuSet {
        self.held().cpus.of(uid, container).cloned().unwrap_or_default()
    }

    pub(crate) fn own_memory(&self, uid: &str, container: &str) -> Vec<memory::Block> {
        self.held().memory.of(uid, container).map(<[_]>::to_vec).unwrap_or_default()
    }

    pub(crate) fn allocatable_cpus(&self) -> CpuSet {
        self.cpu.as_ref().map(cpu::Policy::allocatable).unwrap_or_default()
    }

    /// By NUMA node and kind.
    pub(crate) fn allocatable_memory(&self) -> BTreeMap<u32, memory::Amounts> {
        self.memory.as_ref().map(|policy| policy.allocatable.clone()).unwrap_or_default()
    }

    /// The assignment of a new container. Calls its device plugins.
    pub(crate) async fn prepare(&self, pod: &Tree, spec: &Tree) -> Result<Assignment, devices::DeviceError> {
        let (uid, name) = (pod::uid(pod), spec.str("name"));
        let nodes = self.held().memory.nodes(uid, name);
        let mut given = Assignment {
            cpus: self.cpus(uid, name).to_string(),
            memory_nodes: nodes.bits().collect::<CpuSet>().to_string(),
            has_cpus: !self.own_cpus(uid, name).is_empty(),
            ..Assignment::default()
        };
        self.devices.pre_start(uid, name).await?;
        for share in self.devices.of(uid, name).into_values() {
            given.add(share.answer);
        }
        Ok(given)
    }

    /// Adds the health of devices to the statuses of a pod's containers.
    pub(crate) fn add_health(&self, pod: &Tree, status: &mut Tree) {
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status.list_mut(list) {
                let health = self.devices.health(pod::uid(pod), container.str("name"));
                if !health.is_empty() {
                    container.set("allocatedResourcesStatus", health);
                }
            }
        }
    }

    fn measure(&self, held: &ManagerState) {
        let Some(policy) = &self.cpu else { return };
        let shared = held.cpus.shared.without(&policy.reserved).len();
        let own: usize = held.cpus.given.values().flat_map(BTreeMap::values).map(CpuSet::len).sum();
        self.metrics.record(&metrics::SHARED_POOL, &[], shared as f64 * 1000.0);
        self.metrics.record(&metrics::EXCLUSIVE_CPUS, &[], own as f64);
    }
}
