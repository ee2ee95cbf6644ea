//! A pod: who it is, and the spec that it shares with others of its template.

use std::sync::Arc;

use api::time::{self, Timestamp};
use api::{Str, Tree};

use super::{Labels, PodClaimStatus, Spec, texts_of_field};

/// The parts of a pod that scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub key: Arc<str>,
    pub uid: Str,
    pub namespace: Str,
    pub name: Str,
    pub labels: Labels,
    pub spec: Arc<Spec>,
    pub scheduler_name: Str,
    pub priority: i32,
    pub preempts: bool,
    /// "" while it waits.
    pub node_name: Str,
    pub nominated_node_name: Str,
    /// Names of the gates that hold it back.
    pub gates: Vec<Str>,
    pub created: Timestamp,
    /// When it was asked to end.
    pub is_terminating: bool,
    /// Succeeded or Failed: it takes no place any more.
    pub is_over: bool,
    /// When it started, as its node says.
    pub started: Option<Timestamp>,
    /// The kind, namespace-less name and uid of what controls it.
    pub controller: Option<Controller>,
    /// Whether it has been marked as about to be disrupted by a scheduler's preemption.
    pub is_victim: bool,
    /// The claims that were created for it.
    pub claim_statuses: Vec<PodClaimStatus>,
}

/// The controller that owns a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub kind: Str,
    pub name: Str,
    pub uid: Str,
}

impl Pod {
    /// Reads a pod object.
    pub fn read(pod: &Tree) -> Pod {
        let meta = pod.at("metadata");
        let labels = Labels::read(meta.map("labels"));
        let namespace = meta.str("namespace");
        let text = |path: &str| Str::new(pod.str(path));
        Pod {
            key: key_of(meta),
            uid: text("metadata.uid"),
            namespace: Str::new(namespace),
            name: text("metadata.name"),
            spec: Arc::new(Spec::read(pod, namespace, &labels)),
            labels,
            scheduler_name: text("spec.schedulerName"),
            priority: pod.int("spec.priority").and_then(|number| i32::try_from(number).ok()).unwrap_or(0),
            preempts: pod.str("spec.preemptionPolicy") != "Never",
            node_name: text("spec.nodeName"),
            nominated_node_name: text("status.nominatedNodeName"),
            gates: texts_of_field(pod.list("spec.schedulingGates"), "name"),
            created: time::parse(meta.str("creationTimestamp")).unwrap_or_default(),
            is_terminating: meta.has("deletionTimestamp"),
            is_over: matches!(pod.str("status.phase"), "Succeeded" | "Failed"),
            started: time::parse(pod.str("status.startTime")).ok(),
            controller: controller(meta),
            is_victim: is_victim(pod),
            claim_statuses: pod.list("status.resourceClaimStatuses").iter().map(PodClaimStatus::read).collect(),
        }
    }
}

/// The pod's key in caches and queues: `namespace/name`.
fn key_of(meta: &Tree) -> Arc<str> {
    match meta.str("namespace") {
        "" => Arc::from(meta.str("name")),
        namespace => Arc::from(format!("{namespace}/{}", meta.str("name"))),
    }
}

fn controller(meta: &Tree) -> Option<Controller> {
    let owner = meta.list("ownerReferences").iter().find(|owner| owner.bool("controller"))?;
    let text = |field: &str| Str::new(owner.str(field));
    Some(Controller { kind: text("kind"), name: text("name"), uid: text("uid") })
}

fn is_victim(pod: &Tree) -> bool {
    pod.list("status.conditions").iter().any(|condition| {
        condition.str("type") == "DisruptionTarget"
            && condition.str("status") == "True"
            && condition.str("reason") == "PreemptionByScheduler"
    })
}
