//! The settings of the policies, and their assignments from before this process started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;

use super::machine::Machine;
use super::{checkpoint, cpu, memory};
use crate::config::{Config, Resources};

pub(crate) fn cpu_file(config: &Config) -> PathBuf {
    config.root_dir.join("cpu_manager_state")
}

pub(crate) fn memory_file(config: &Config) -> PathBuf {
    config.root_dir.join("memory_manager_state")
}

/// How much of a resource is reserved.
fn reserved(config: &Config, name: &str, of: impl Fn(&api::quantity::Quantity) -> i64) -> i64 {
    let sum = |resources: &Resources| resources.get(name).map_or(0, &of);
    sum(&config.allocatable.kube_reserved) + sum(&config.allocatable.system_reserved)
}

pub(crate) fn cpu_policy(config: &Config, machine: &Arc<Machine>) -> Result<cpu::Policy, cpu::PolicyError> {
    let milli = reserved(config, "cpu", |quantity| quantity.milli_value());
    let reserved = match &config.allocatable.reserved_cpus {
        Some(cpus) => cpu::Reserved::These(cpus),
        None => cpu::Reserved::Milli(milli),
    };
    cpu::Policy::new(machine.clone(), config.pinning.cpu_options, reserved)
}

pub(crate) fn memory_policy(config: &Config, machine: &Arc<Machine>) -> Result<memory::Policy, memory::PolicyError> {
    let whole = machine.nodes.values().map(|node| node.memory_bytes).sum::<u64>();
    let threshold = config.eviction.hard().find(|threshold| threshold.signal == "memory.available");
    let threshold = threshold.map_or(0, |threshold| threshold.least.of(i64::try_from(whole).unwrap_or(i64::MAX)));
    let kept = reserved(config, "memory", |quantity| quantity.value()) + threshold;
    memory::Policy::new(machine, &config.pinning.reserved_memory, u64::try_from(kept).unwrap_or(0))
}

/// A checkpoint of another policy, or an unreadable one, stops the start: containers may use its assignments.
fn read_checkpoint(file: &Path, policy: &'static str, manager: &'static str) -> Result<Option<Tree>, RestoreError> {
    let unfit = |source| RestoreError { file: file.to_path_buf(), manager, source };
    let kept = checkpoint::read(file).map_err(|error| unfit(error.into()))?;
    let other = kept.as_ref().map(|kept| kept.str("policyName")).filter(|other| *other != policy);
    match other {
        Some(other) => Err(unfit(StateError::OtherPolicy { policy, other: other.to_string() })),
        None => Ok(kept),
    }
}

/// A checkpoint that does not fit the configuration or the machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not restore state from checkpoint: {source}, please drain this node and delete the {manager} manager \
     checkpoint file {:?} before restarting Kubelet",
    .file.display().to_string()
)]
pub struct RestoreError {
    file: PathBuf,
    manager: &'static str,
    source: StateError,
}

/// Why a checkpoint does not fit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::ReadError),
    #[error("configured policy {policy:?} differs from state checkpoint policy {other:?}")]
    OtherPolicy { policy: &'static str, other: String },
    #[error(transparent)]
    Cpu(#[from] cpu::StateError),
    #[error(transparent)]
    Memory(#[from] memory::StateError),
}

pub(crate) fn restore_cpus(config: &Config, policy: Option<&cpu::Policy>) -> Result<cpu::State, RestoreError> {
    let file = cpu_file(config);
    let Some(policy) = policy else {
        return read_checkpoint(&file, "none", "CPU").map(|_| cpu::State::default());
    };
    let Some(tree) = read_checkpoint(&file, "static", "CPU")? else { return Ok(policy.fresh()) };
    let state = cpu::State::read(&tree).and_then(|state| policy.check(&state).map(|()| state));
    state.map_err(|error| RestoreError { file, manager: "CPU", source: error.into() })
}

pub(crate) fn restore_memory(config: &Config, policy: Option<&memory::Policy>) -> Result<memory::State, RestoreError> {
    let file = memory_file(config);
    let Some(policy) = policy else {
        return read_checkpoint(&file, "None", "memory").map(|_| memory::State::default());
    };
    let Some(tree) = read_checkpoint(&file, "Static", "memory")? else { return Ok(memory::State::default()) };
    let state =
        memory::State::read(&tree).and_then(|state| policy.check(tree.at("machineState"), &state).map(|()| state));
    state.map_err(|error| RestoreError { file, manager: "memory", source: error.into() })
}
