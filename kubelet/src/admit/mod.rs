//! Whether a node takes a pod that was bound to it. The handlers are one list; each has its reason to refuse.

mod predicates;
pub mod resize;
mod sysctls;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::Tree;
use scheduler::model::{Node, Pod};

use crate::status::Problem;

/// What a handler looks at.
pub struct Case<'a> {
    pub tree: &'a Tree,
    pub pod: &'a Pod,
    pub node: &'a Node,
    /// Those that the node has taken and that take place on it still.
    pub others: Vec<&'a Pod>,
    pub rules: &'a Rules,
}

/// What holds on the node now.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Conditions of the node under which not every pod is taken.
    pub pressure: Vec<&'static str>,
    pub shuts_down: bool,
    /// Resources that plugins give: the pod has got them already, whatever the node shows of them yet.
    pub given: Vec<String>,
}

type Handler = fn(&Case<'_>) -> Result<(), Problem>;

/// In the order in which they are asked, as upstream asks them: these before anything is given to the pod,
const EARLY: [Handler; 2] = [pressure, sysctls::allowed];
/// and these after that.
const LATE: [Handler; 8] = [
    predicates::features,
    predicates::resources,
    predicates::name,
    predicates::ports,
    predicates::affinity,
    predicates::taints,
    predicates::operating_system,
    shutdown,
];

pub fn judge(case: &Case<'_>) -> Result<(), Problem> {
    EARLY.iter().chain(&LATE).try_for_each(|handler| handler(case))
}

/// What the node has taken.
#[derive(Default)]
pub struct Admission(Mutex<BTreeMap<String, Arc<Pod>>>);

impl Admission {
    /// Takes a pod, if nothing speaks against it; two at once never take the same place.
    pub fn admit(&self, tree: &Tree, node: &Tree, rules: &Rules) -> Result<(), Problem> {
        let (pod, node) = (Pod::read(tree), Node::read(node));
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = taken.values().filter(|other| other.uid != pod.uid).map(Arc::as_ref).collect();
        judge(&Case { tree, pod: &pod, node: &node, others, rules })?;
        taken.insert(pod.uid.to_string(), Arc::new(pod));
        Ok(())
    }

    /// Whether anything of the pod itself speaks against it.
    pub fn look(&self, tree: &Tree, node: &Tree, rules: &Rules) -> Result<(), Problem> {
        let (pod, node) = (Pod::read(tree), Node::read(node));
        let case = Case { tree, pod: &pod, node: &node, others: Vec::new(), rules };
        EARLY.iter().try_for_each(|handler| handler(&case))
    }

    /// A pod that runs already: whoever was here before has taken it.
    pub fn take(&self, tree: &Tree) {
        let pod = Pod::read(tree);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.uid.to_string(), Arc::new(pod));
    }

    /// A pod takes no place any more.
    pub fn release(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// The cluster's own pods, which run whatever the node's condition is.
pub fn is_critical(pod: &Tree) -> bool {
    const SYSTEM: i64 = 2_000_000_000;
    crate::pod::is_static(pod) || pod.int("spec.priority").is_some_and(|priority| priority >= SYSTEM)
}

fn refused(reason: &'static str, message: impl Into<String>) -> Result<(), Problem> {
    Err(Problem { reason, message: message.into() })
}

/// Under pressure only pods that matter, or that will not make it worse.
fn pressure(case: &Case<'_>) -> Result<(), Problem> {
    use crate::make::resources::{Class, class};
    if case.rules.pressure.is_empty() || is_critical(case.tree) {
        return Ok(());
    }
    let only_memory = case.rules.pressure.iter().all(|condition| *condition == "MemoryPressure");
    let tolerates = || {
        let keys = case.tree.list("spec.tolerations").iter();
        keys.into_iter().any(|toleration| toleration.str("key") == "node.kubernetes.io/memory-pressure")
    };
    if only_memory && (class(case.tree) != Class::BestEffort || tolerates()) {
        return Ok(());
    }
    refused("Evicted", format!("The node had condition: [{}]. ", case.rules.pressure.join(" ")))
}

fn shutdown(case: &Case<'_>) -> Result<(), Problem> {
    if case.rules.shuts_down {
        return refused("NodeShutdown", "Pod was rejected as the node is shutting down.");
    }
    Ok(())
}
