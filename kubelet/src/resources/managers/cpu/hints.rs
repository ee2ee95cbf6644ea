//! Topology hints for CPUs.

use api::Tree;

use super::super::numa::{Hint, Hints, Mask, hints};
use super::super::requests;
use super::{Policy, State};
use crate::model::cpuset::CpuSet;
use crate::model::pod;

impl Policy {
    pub(crate) fn hints(&self, state: &State, pod: &Tree, spec: &Tree) -> Hints {
        let desired = requests::cpus(pod, spec);
        if desired == 0 {
            return Hints::new();
        }
        let hints = match state.of(pod::uid(pod), spec.str("name")) {
            Some(has) if has.len() != desired => Vec::new(),
            Some(has) => self.hints_for_amount(has, &CpuSet::default(), desired),
            None => self.hints_for_amount(&state.shared.without(&self.reserved), &state.reusable(pod), desired),
        };
        named(hints)
    }

    /// For the pod as a whole.
    pub(crate) fn pod_hints(&self, state: &State, pod: &Tree) -> Hints {
        let desired = requests::at_once(pod, |spec| requests::cpus(pod, spec) as u64);
        let Some(desired) = usize::try_from(desired).ok().filter(|desired| *desired > 0) else { return Hints::new() };
        let mut has = CpuSet::default();
        for spec in requests::containers(pod) {
            let Some(cpus) = state.of(pod::uid(pod), spec.str("name")) else { continue };
            if cpus.len() != requests::cpus(pod, spec) {
                return named(Vec::new());
            }
            has = has.with(cpus);
        }
        if has.len() == desired {
            return named(self.hints_for_amount(&has, &CpuSet::default(), desired));
        }
        let reusable = state.reusable(pod).with(&has);
        named(self.hints_for_amount(&state.shared.without(&self.reserved), &reusable, desired))
    }

    fn hints_for_amount(&self, free: &CpuSet, reusable: &CpuSet, desired: usize) -> Vec<Hint> {
        let machine = &self.machine;
        let count = |cpus: &CpuSet, mask: Mask| {
            cpus.iter().filter(|cpu| machine.cpus.get(cpu).is_some_and(|cpu| mask.has(cpu.node))).count()
        };
        let all = machine.all();
        let nodes: Vec<u32> = machine.parts(&all, |cpu| cpu.node).into_keys().collect();
        let holds = |mask: Mask| count(&all, mask) >= desired;
        // Reused CPUs must be among them.
        let fits =
            |mask: Mask| count(reusable, mask) == reusable.len() && count(free, mask) + reusable.len() >= desired;
        let mut hints = hints(&nodes, holds, fits);
        if self.options.align_by_socket {
            self.prefer_sockets(&mut hints, &nodes, holds);
        }
        hints
    }

    /// Nodes of as few sockets as can be are as good as the fewest nodes.
    fn prefer_sockets(&self, hints: &mut [Hint], nodes: &[u32], holds: impl Fn(Mask) -> bool) {
        let masks = super::super::numa::masks(nodes);
        let fewest = masks.iter().find(|mask| holds(**mask)).map_or(nodes.len(), |mask| mask.count() as usize);
        let per_socket = nodes.len() / self.machine.count(|cpu| cpu.socket).max(1);
        if per_socket == 0 {
            return;
        }
        let sockets = |mask: Mask| {
            let nodes: Vec<u32> = mask.bits().collect();
            let cpus = self.machine.within(&self.machine.all(), |cpu| cpu.node, &nodes);
            self.machine.parts(&cpus, |cpu| cpu.socket).len()
        };
        for hint in hints {
            hint.preferred |= hint.affinity.is_some_and(|mask| sockets(mask) == fewest.div_ceil(per_socket));
        }
    }
}

fn named(hints: Vec<Hint>) -> Hints {
    Hints::from([("cpu".to_string(), Some(hints))])
}
