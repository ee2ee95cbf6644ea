//! Exclusive CPUs for containers that request whole CPUs in Guaranteed pods; all other containers share the rest. Pure:
//! the assignments are a value of the caller.

mod accumulator;
mod hints;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};

use super::machine::Machine;
use super::numa::Mask;
use super::{Rejection, requests};
pub(crate) use crate::config::cpu_options::Options;
use crate::model::cpuset::{self, CpuSet};
use crate::model::pod;
pub(crate) use accumulator::NotEnough;
use accumulator::{AllocationStrategy, take_cpus};

/// The assignment of CPUs, by pod and container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// All CPUs that are not exclusive.
    pub(crate) shared: CpuSet,
    pub(crate) given: BTreeMap<String, BTreeMap<String, CpuSet>>,
}

/// The static policy.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) machine: Arc<Machine>,
    pub(crate) options: Options,
    /// CPUs that are never exclusive.
    pub(crate) reserved: CpuSet,
    /// With all other threads of the same cores.
    reserved_cores: CpuSet,
}

/// A static policy that the machine or the configuration does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number \
                        of NUMA"
    )]
    AlignBySocket,
    #[error("there are no CPUs {0} to reserve")]
    NoSuchCpus(CpuSet),
    #[error(transparent)]
    NotEnough(#[from] NotEnough),
    #[error("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")]
    NoneReserved,
}

/// A checkpoint that does not fit the machine or the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StateError {
    #[error("default cpuset cannot be empty")]
    NothingShared,
    #[error("some of strictly reserved cpus: \"{both}\" are present in defaultCpuSet: \"{shared}\"")]
    ReservedShared { both: CpuSet, shared: CpuSet },
    #[error("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\"")]
    ReservedNotShared { reserved: CpuSet, shared: CpuSet },
    #[error("pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\"")]
    Overlap { pod: String, container: String, cpus: CpuSet, shared: CpuSet },
    #[error("current set of available CPUs \"{usable}\" doesn't match with CPUs in state \"{known}\"")]
    OtherCpus { usable: CpuSet, known: CpuSet },
    #[error(transparent)]
    CpuSet(#[from] cpuset::ParseError),
}

/// A container that cannot have whole cores.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SmtError {
    #[error("SMT Alignment Error: requested {wanted} cpus not multiple cpus per core = {threads}")]
    NotMultiple { wanted: usize, threads: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, requested CPUs = \
         {wanted}, CPUs per core = {threads}"
    )]
    NotEnough { free: usize, wanted: usize, threads: usize },
}

/// Reserved CPUs: listed ones, or an amount.
pub(crate) enum Reserved<'a> {
    These(&'a CpuSet),
    Milli(i64),
}

impl Policy {
    pub(crate) fn new(machine: Arc<Machine>, options: Options, reserved: Reserved<'_>) -> Result<Policy, PolicyError> {
        if options.align_by_socket && machine.count(|cpu| cpu.socket) > machine.count(|cpu| cpu.node) {
            return Err(PolicyError::AlignBySocket);
        }
        let mut policy = Policy { machine, options, reserved: CpuSet::default(), reserved_cores: CpuSet::default() };
        policy.reserved = match reserved {
            Reserved::These(cpus) if policy.machine.all().contains_all(cpus) => cpus.clone(),
            Reserved::These(cpus) => {
                return Err(PolicyError::NoSuchCpus(cpus.without(&policy.machine.all())));
            }
            Reserved::Milli(milli) => {
                policy.choose(&policy.machine.all(), usize::try_from((milli + 999) / 1000).unwrap_or(0))?
            }
        };
        if policy.reserved.is_empty() {
            return Err(PolicyError::NoneReserved);
        }
        let cores: Vec<u32> = policy.machine.parts(&policy.reserved, |cpu| cpu.core).into_keys().collect();
        policy.reserved_cores = policy.machine.within(&policy.machine.all(), |cpu| cpu.core, &cores);
        Ok(policy)
    }

    /// All CPUs that can be shared or exclusive.
    fn usable(&self) -> CpuSet {
        match self.options.strict_reservation {
            true => self.machine.all().without(&self.reserved),
            false => self.machine.all(),
        }
    }

    pub(crate) fn fresh(&self) -> State {
        State { shared: self.usable(), given: BTreeMap::new() }
    }

    /// CPUs that containers may have for themselves.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.machine.all().without(&self.reserved)
    }

    /// Whether a checkpoint fits this machine and the configuration.
    pub(crate) fn check(&self, state: &State) -> Result<(), StateError> {
        let (reserved, shared) = (&self.reserved, &state.shared);
        if shared.is_empty() && !state.given.is_empty() {
            return Err(StateError::NothingShared);
        }
        let both = reserved.and(shared);
        if self.options.strict_reservation && !both.is_empty() {
            return Err(StateError::ReservedShared { both, shared: shared.clone() });
        }
        if !self.options.strict_reservation && both != *reserved {
            return Err(StateError::ReservedNotShared { reserved: reserved.clone(), shared: shared.clone() });
        }
        let mut known = shared.clone();
        for (pod, containers) in &state.given {
            for (container, cpus) in containers {
                if !cpus.and(shared).is_empty() {
                    let (pod, container) = (pod.clone(), container.clone());
                    return Err(StateError::Overlap { pod, container, cpus: cpus.clone(), shared: shared.clone() });
                }
                known = known.with(cpus);
            }
        }
        let usable = self.usable();
        if known != usable {
            return Err(StateError::OtherCpus { usable, known });
        }
        Ok(())
    }

    /// Assigns a container its exclusive CPUs; nothing happens if it has them already, or requests none.
    pub(crate) fn allocate(
        &self,
        state: &mut State,
        pod: &Tree,
        spec: &Tree,
        near: Option<Mask>,
    ) -> Result<(), Rejection> {
        let wanted = requests::cpus(pod, spec);
        if wanted == 0 {
            return Ok(());
        }
        let (uid, name) = (pod::uid(pod), spec.str("name"));
        if state.of(uid, name).is_some() {
            return Ok(());
        }
        if self.options.full_cores_only {
            self.check_cores(state, wanted)?;
        }
        let free = state.shared.without(&self.reserved).with(&state.reusable(pod));
        let given = self.choose_near(&free, wanted, near).map_err(|error| Rejection::Unexpected(error.into()))?;
        state.shared = state.shared.without(&given);
        state.given.entry(uid.to_string()).or_default().insert(name.to_string(), given);
        Ok(())
    }

    fn check_cores(&self, state: &State, wanted: usize) -> Result<(), Rejection> {
        let threads = self.machine.cpus_per_core();
        if !wanted.is_multiple_of(threads) {
            return Err(Rejection::Smt(SmtError::NotMultiple { wanted, threads }));
        }
        let free = state.shared.without(&self.reserved_cores).len();
        if wanted > free {
            return Err(Rejection::Smt(SmtError::NotEnough { free, wanted, threads }));
        }
        Ok(())
    }

    /// CPUs of the nodes first, as many as there are.
    fn choose_near(&self, free: &CpuSet, wanted: usize, near: Option<Mask>) -> Result<CpuSet, NotEnough> {
        let close = near.map(|near| self.close_to(near, free)).unwrap_or_default();
        let first = self.choose(&close, wanted.min(close.len()))?;
        let rest = self.choose(&free.without(&first), wanted - first.len())?;
        Ok(first.with(&rest))
    }

    fn close_to(&self, near: Mask, free: &CpuSet) -> CpuSet {
        let nodes: Vec<u32> = near.bits().collect();
        let close = self.machine.within(&self.machine.all(), |cpu| cpu.node, &nodes);
        if !self.options.align_by_socket {
            return close.and(free);
        }
        let sockets: Vec<u32> = self.machine.parts(&close, |cpu| cpu.socket).into_keys().collect();
        self.machine.within(free, |cpu| cpu.socket, &sockets)
    }

    fn choose(&self, free: &CpuSet, wanted: usize) -> Result<CpuSet, NotEnough> {
        let group = if self.options.full_cores_only { self.machine.cpus_per_core() } else { 1 };
        let strategy = AllocationStrategy {
            spread: self.options.distribute_over_cores,
            by_cache: self.options.prefer_cache,
            distribute: self.options.distribute_over_nodes.then_some(group),
        };
        take_cpus(&self.machine, free, wanted, strategy)
    }
}

impl State {
    /// The exclusive CPUs of a container.
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.given.get(uid)?.get(container)
    }

    /// CPUs of init containers, which have completed when main containers start.
    fn reusable(&self, pod: &Tree) -> CpuSet {
        let mut reusable = CpuSet::default();
        for spec in requests::containers(pod) {
            let Some(cpus) = self.of(pod::uid(pod), spec.str("name")) else { continue };
            reusable = match requests::is_passing(pod, spec) {
                true => reusable.with(cpus),
                false => reusable.without(cpus),
            };
        }
        reusable
    }

    /// Returns a pod's CPUs to the shared ones; false if it had none.
    pub(crate) fn release(&mut self, uid: &str) -> bool {
        let Some(containers) = self.given.remove(uid) else { return false };
        self.shared = containers.values().fold(self.shared.clone(), |shared, cpus| shared.with(cpus));
        true
    }

    pub(crate) fn to_checkpoint(&self) -> Tree {
        let mut entries = tree! {};
        for (uid, containers) in &self.given {
            for (name, cpus) in containers {
                entries.child(uid).set(name, cpus.to_string());
            }
        }
        tree! { "policyName" => "static", "defaultCpuSet" => self.shared.to_string(), "entries" => entries }
    }

    pub(crate) fn read(tree: &Tree) -> Result<State, StateError> {
        let set = |text: &str| CpuSet::parse(text);
        let mut given = BTreeMap::new();
        for (uid, containers) in tree.map("entries").iter() {
            let containers = containers.as_map().into_iter().flat_map(|map| map.iter());
            let containers =
                containers.map(|(name, cpus)| Ok((name.to_string(), set(cpus.as_str().unwrap_or_default())?)));
            given.insert(uid.to_string(), containers.collect::<Result<_, StateError>>()?);
        }
        Ok(State { shared: set(tree.str("defaultCpuSet"))?, given })
    }
}
