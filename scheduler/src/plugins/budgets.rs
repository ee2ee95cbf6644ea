//! PodDisruptionBudgets during preemption.

use std::sync::Arc;

use api::{Str, Tree};

use crate::snapshot::{Kind, Snapshot};
use podmodel::{Pod, Selector};

pub(super) struct Budgets(Vec<Budget>);

#[derive(Clone)]
struct Budget {
    namespace: Str,
    selector: Selector,
    allowed: i64,
    /// Pods whose eviction the API server has counted already.
    disrupted: Vec<Str>,
}

impl Budgets {
    pub(super) fn read(snapshot: &Snapshot) -> Budgets {
        let all = snapshot.objects.all(Kind::PodDisruptionBudget);
        Budgets(all.iter().map(|budget| Budget::read(budget)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pods whose eviction would violate a budget, and all other pods, both in order.
    pub(super) fn split(&self, pods: Vec<Arc<Pod>>) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
        let mut left: Vec<i64> = self.0.iter().map(|budget| budget.allowed).collect();
        let mut is_guarded = |pod: &Arc<Pod>| {
            let mut guarded = false;
            for (_, left) in self.0.iter().zip(&mut left).filter(|(budget, _)| budget.covers(pod)) {
                *left -= 1;
                guarded |= *left < 0;
            }
            guarded
        };
        pods.into_iter().partition(|pod| is_guarded(pod))
    }
}

impl Budget {
    fn read(budget: &Tree) -> Budget {
        Budget {
            namespace: Str::new(budget.str("metadata.namespace")),
            selector: Selector::read(budget.at("spec.selector")),
            allowed: budget.int("status.disruptionsAllowed").unwrap_or(0),
            disrupted: budget.map("status.disruptedPods").keys().map(Str::new).collect(),
        }
    }

    /// An empty selector matches nothing here.
    fn covers(&self, pod: &Pod) -> bool {
        self.namespace == pod.namespace
            && !self.selector.is_everything()
            && !pod.labels.is_empty()
            && self.selector.matches(&pod.labels)
            && !self.disrupted.contains(&pod.name)
    }
}
