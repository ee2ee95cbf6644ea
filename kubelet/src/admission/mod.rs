//! Pod admission: decides whether a node accepts a pod that was bound to it. The handlers are one list; each has its
//! own reason for a rejection.

mod apparmor;
mod predicates;
pub(crate) mod preempt;
pub(crate) mod resize;
pub(crate) mod sysctls;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use podmodel::{Effect, Node, Pod, Taint};
use stdx::sync::Mutex;

use crate::model::pod::is_critical;
use crate::model::problem::Problem;
use crate::model::resources::{Class, class};
pub(crate) use apparmor::is_enabled as has_apparmor;
use preempt::Preemption;

/// The input of a handler.
pub(crate) struct PodAdmitAttributes<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) pod: &'a Pod,
    pub(crate) node: &'a Node,
    /// The admitted pods that still count.
    pub(crate) others: Vec<&'a Pod>,
    pub(crate) rules: &'a Rules,
}

/// The current settings and conditions of the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) allowed_unsafe_sysctls: Vec<String>,
    /// Conditions of the node under which some pods are rejected.
    pub(crate) pressure: Vec<&'static str>,
    pub(crate) shuts_down: bool,
    /// The kernel confines by AppArmor's profiles.
    pub(crate) has_apparmor: bool,
    /// The runtime can leave out the groups of an image's user.
    pub(crate) has_groups_policy: bool,
    /// Resources of device plugins that are assigned to the pod already, whatever the node's status shows.
    pub(crate) given: Vec<String>,
}

type Handler = fn(&PodAdmitAttributes<'_>) -> Result<(), Problem>;

/// The handlers in upstream's order: these before anything is assigned to the pod,
const EARLY: &[Handler] = &[pressure, sysctls::allowed];
/// and these after that.
const LATE: &[Handler] = &[
    // Reasons that preemption cannot solve come before those that it can.
    predicates::operating_system,
    predicates::groups_policy,
    predicates::resources,
    predicates::affinity,
    predicates::name,
    predicates::ports,
    predicates::taints,
    apparmor::available,
    predicates::features,
    shutdown,
];

pub(crate) fn check_resize(attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    EARLY.iter().chain(LATE).try_for_each(|handler| handler(attributes))
}

/// An admitted pod.
#[derive(Debug)]
struct AdmittedPod {
    pod: Pod,
    class: Class,
    is_critical: bool,
    priority: Option<i64>,
}

impl AdmittedPod {
    fn of(tree: &Tree) -> AdmittedPod {
        let (class, priority) = (class(tree), tree.int("spec.priority"));
        AdmittedPod { pod: Pod::read(tree), class, is_critical: is_critical(tree), priority }
    }

    fn request(&self, name: &str) -> i64 {
        if name == "pods" { 1 } else { self.pod.spec.requests.get(name) }
    }
}

/// The admitted pods.
#[derive(Default)]
pub(crate) struct Admission(Mutex<BTreeMap<String, Arc<AdmittedPod>>>);

impl Admission {
    /// Admits a pod if no handler refuses it; two pods never get the same resources. A critical pod may preempt others:
    /// their UIDs are returned, and they count until they are released.
    pub(crate) fn admit(&self, tree: &Tree, node: &Tree, rules: &Rules) -> Result<Preemption, Problem> {
        let (own, node) = (AdmittedPod::of(tree), Node::read(node));
        let pod = &own.pod;
        let mut taken = self.0.lock();
        let others: Vec<&AdmittedPod> =
            taken.values().map(Arc::as_ref).filter(|other| other.pod.uid != pod.uid).collect();
        let attributes = |gone: &[String]| {
            let stays = |other: &&&AdmittedPod| !gone.iter().any(|uid| *uid == other.pod.uid.as_str());
            PodAdmitAttributes {
                tree,
                pod,
                node: &node,
                others: others.iter().filter(stays).map(|other| &other.pod).collect(),
                rules,
            }
        };
        let all = attributes(&[]);
        let room = preempt::find_preemption(&all, &others, &predicates::shortages(&all))?;
        check_resize(&attributes(&room.victims))?;
        taken.insert(own.pod.uid.to_string(), Arc::new(own));
        Ok(room)
    }

    /// Whether a pod counts.
    pub(crate) fn holds(&self, uid: &str) -> bool {
        self.0.lock().contains_key(uid)
    }

    /// Checks the requirements of the pod itself, without other pods.
    pub(crate) fn look(&self, tree: &Tree, node: &Tree, rules: &Rules) -> Result<(), Problem> {
        let (pod, node) = (Pod::read(tree), Node::read(node));
        let attributes = PodAdmitAttributes { tree, pod: &pod, node: &node, others: Vec::new(), rules };
        EARLY.iter().try_for_each(|handler| handler(&attributes))
    }

    /// Counts a running pod, which an earlier kubelet has admitted.
    pub(crate) fn take(&self, tree: &Tree) {
        let own = AdmittedPod::of(tree);
        self.0.lock().insert(own.pod.uid.to_string(), Arc::new(own));
    }

    /// A pod does not count any more.
    pub(crate) fn release(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

fn refused(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Result<(), Problem> {
    Err(Problem { reason: reason.into(), message: message.into() })
}

/// Under pressure only critical pods are admitted, or pods that do not make it worse.
fn pressure(attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    if attributes.rules.pressure.is_empty() || is_critical(attributes.tree) {
        return Ok(());
    }
    let only_memory = attributes.rules.pressure.iter().all(|condition| *condition == "MemoryPressure");
    let taint =
        Taint { key: "node.kubernetes.io/memory-pressure".into(), value: "".into(), effect: Effect::NoSchedule };
    let tolerates = || attributes.pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(&taint));
    if only_memory && (class(attributes.tree) != Class::BestEffort || tolerates()) {
        return Ok(());
    }
    refused("Evicted", format!("The node had condition: [{}]. ", attributes.rules.pressure.join(" ")))
}

fn shutdown(attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    if attributes.rules.shuts_down {
        return refused("NodeShutdown", "Pod was rejected as the node is shutting down.");
    }
    Ok(())
}
