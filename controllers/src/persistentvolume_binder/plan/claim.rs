//! Plans a claim.

use std::sync::Arc;

use api::Tree;

use super::matching::{best, mismatch};
use crate::support::event_message::EventMessage;
use crate::support::nodes::is_accessible_from;
use crate::support::volumes::{
    BIND_COMPLETED, PROVISIONER, SELECTED_NODE, annotation, class_of, has_annotation, is_default_class, is_for,
    leaves_class_open,
};

pub(crate) struct ObservedState<'a> {
    pub claim: &'a Tree,
    /// The volume that the claim names.
    pub named: Option<Arc<Tree>>,
    /// Volumes reserved for the claim, and available ones of its class.
    pub volumes: &'a [Arc<Tree>],
    /// The claim's class.
    pub class: Option<&'a Tree>,
    pub classes: &'a [Arc<Tree>],
    /// The pods that use the claim, sorted by name.
    pub pods: &'a [Arc<Tree>],
    /// The node selected for the claim.
    pub node: Option<Arc<Tree>>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Plan {
    /// The phase stays or becomes `Pending` or `Lost`.
    Wait {
        phase: &'static str,
        event: Option<EventMessage>,
    },
    Bind(Arc<Tree>),
    /// The default class, for a claim that was created before the class.
    SetClass(String),
    /// A pod was bound to a node without the scheduler: the volume must be available there.
    SelectNode(String),
    /// An external provisioner creates the volume once the claim names it.
    Provision {
        provisioner: String,
        event: EventMessage,
    },
}

impl Plan {
    fn pending(event: EventMessage) -> Plan {
        Plan::Wait { phase: "Pending", event: Some(event) }
    }

    fn lost(reason: &'static str, message: &str) -> Plan {
        Plan::Wait { phase: "Lost", event: Some(EventMessage::warning(reason, message)) }
    }
}

pub(crate) fn plan(observed: &ObservedState<'_>) -> Plan {
    match (has_annotation(observed.claim, BIND_COMPLETED), observed.claim.str("spec.volumeName")) {
        (true, "") => {
            Plan::lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
        }
        (true, _) => plan_bound(observed),
        (false, "") => plan_any(observed),
        (false, _) => plan_named(observed),
    }
}

fn plan_bound(observed: &ObservedState<'_>) -> Plan {
    let Some(volume) = &observed.named else {
        return Plan::lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    let reference = volume.at("spec.claimRef");
    if reference.is_null() || reference.str("uid") == observed.claim.str("metadata.uid") {
        return Plan::Bind(volume.clone());
    }
    Plan::lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

/// The claim names a volume.
fn plan_named(observed: &ObservedState<'_>) -> Plan {
    let Some(volume) = &observed.named else { return Plan::Wait { phase: "Pending", event: None } };
    let name = volume.str("metadata.name");
    if is_for(volume, observed.claim) {
        return Plan::Bind(volume.clone());
    }
    if !volume.at("spec.claimRef").is_null() {
        let message = format!("volume {name:?} already bound to a different claim.");
        return Plan::pending(EventMessage::warning("FailedBinding", message));
    }
    match mismatch(volume, observed.claim) {
        None => Plan::Bind(volume.clone()),
        Some(why) => {
            let message = format!("Cannot bind to requested volume {name:?}: {why}");
            Plan::pending(EventMessage::warning("VolumeMismatch", message))
        }
    }
}

/// Any matching volume may be bound.
fn plan_any(observed: &ObservedState<'_>) -> Plan {
    let claim = observed.claim;
    let waits = observed.class.is_some_and(|class| class.str("volumeBindingMode") == "WaitForFirstConsumer");
    let near = |node: &Arc<Tree>| {
        let reaching = observed.volumes.iter().filter(|volume| is_accessible_from(volume, node)).cloned();
        best(claim, &reaching.collect::<Vec<_>>(), false)
    };
    // A claim with a selected node may bind any volume that is reachable from it.
    let found = best(claim, observed.volumes, waits).or_else(|| observed.node.as_ref().and_then(near));
    if let Some(volume) = found {
        return Plan::Bind(volume);
    }
    if leaves_class_open(claim)
        && let Some(class) = default_class(observed.classes)
    {
        return Plan::SetClass(class.str("metadata.name").to_string());
    }
    if waits && !has_annotation(claim, SELECTED_NODE) {
        return plan_consumer(observed);
    }
    match class_of(claim) {
        "" => Plan::pending(EventMessage::normal(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        )),
        name => plan_provision(observed, name),
    }
}

/// The newest default class; the first by name if created at the same time.
pub(crate) fn default_class(classes: &[Arc<Tree>]) -> Option<&Arc<Tree>> {
    let key = |class: &&Arc<Tree>| {
        let created = class.str("metadata.creationTimestamp").to_string();
        (std::cmp::Reverse(created), class.str("metadata.name").to_string())
    };
    classes.iter().filter(|class| is_default_class(class)).min_by_key(key)
}

fn plan_consumer(observed: &ObservedState<'_>) -> Plan {
    let placed = observed.pods.iter().map(|pod| pod.str("spec.nodeName")).find(|node| !node.is_empty());
    if let Some(node) = placed {
        return Plan::SelectNode(node.to_string());
    }
    let names: Vec<&str> = observed.pods.iter().map(|pod| pod.str("metadata.name")).collect();
    Plan::pending(match names.as_slice() {
        [] => EventMessage::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        [one] => EventMessage::normal("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        all => {
            EventMessage::normal("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", all.join(",")))
        }
    })
}

fn plan_provision(observed: &ObservedState<'_>, name: &str) -> Plan {
    let failed = |why: String| Plan::pending(EventMessage::warning("ProvisioningFailed", why));
    let Some(class) = observed.class else {
        return failed(format!("storageclass.storage.k8s.io {name:?} not found"));
    };
    let provisioner = class.str("provisioner");
    // In-tree plugins were removed, and `no-provisioner` is not a plugin either.
    if provisioner.starts_with("kubernetes.io/") {
        return failed(format!("no volume plugin matched name: {provisioner}"));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    let event = EventMessage::normal("ExternalProvisioning", message);
    match annotation(observed.claim, PROVISIONER) == provisioner {
        true => Plan::pending(event),
        false => Plan::Provision { provisioner: provisioner.to_string(), event },
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn claim(spec: Tree) -> Tree {
        let mut whole = tree! {
            "accessModes" => list!["ReadWriteOnce"],
            "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
        };
        for (key, value) in spec.as_map().into_iter().flat_map(api::Map::iter) {
            whole.set(key, value.clone());
        }
        let metadata = tree! { "namespace" => "n", "name" => "c", "uid" => "u", "annotations" => tree! {} };
        tree! { "metadata" => metadata, "spec" => whole, "status" => tree! { "phase" => "Pending" } }
    }

    fn annotated(mut claim: Tree, key: &str, value: &str) -> Tree {
        claim.child("metadata.annotations").set(key, value);
        claim
    }

    fn volume(reference: Tree) -> Arc<Tree> {
        let spec = tree! {
            "capacity" => tree! { "storage" => "1Gi" },
            "accessModes" => list!["ReadWriteOnce"],
            "claimRef" => reference,
        };
        Arc::new(tree! {
            "metadata" => tree! { "name" => "v" },
            "spec" => spec,
            "status" => tree! { "phase" => "Available" },
        })
    }

    fn class(name: &str, provisioner: &str, waits: bool) -> Arc<Tree> {
        let mode = if waits { "WaitForFirstConsumer" } else { "Immediate" };
        Arc::new(tree! {
            "metadata" => tree! { "name" => name, "creationTimestamp" => "2024-01-01T00:00:00Z" },
            "provisioner" => provisioner,
            "volumeBindingMode" => mode,
        })
    }

    fn pod(name: &str, node: &str) -> Arc<Tree> {
        Arc::new(tree! { "metadata" => tree! { "name" => name }, "spec" => tree! { "nodeName" => node } })
    }

    struct Case {
        claim: Tree,
        named: Option<Arc<Tree>>,
        volumes: Vec<Arc<Tree>>,
        classes: Vec<Arc<Tree>>,
        pods: Vec<Arc<Tree>>,
        node: Option<Arc<Tree>>,
    }

    impl Case {
        fn of(claim: Tree) -> Case {
            Case { claim, named: None, volumes: Vec::new(), classes: Vec::new(), pods: Vec::new(), node: None }
        }

        /// Expects the plan as a short text.
        fn check(self, want: &str) {
            let name = class_of(&self.claim).to_string();
            let class = self.classes.iter().find(|class| class.str("metadata.name") == name);
            let observed = ObservedState {
                claim: &self.claim,
                named: self.named,
                volumes: &self.volumes,
                class: class.map(|class| &**class),
                classes: &self.classes,
                pods: &self.pods,
                node: self.node,
            };
            let got = match plan(&observed) {
                Plan::Wait { phase, event } => {
                    format!("{phase} {}", event.map(|event| event.message).unwrap_or_default())
                }
                Plan::Bind(volume) => format!("bind {}", volume.str("metadata.name")),
                Plan::SetClass(name) => format!("class {name}"),
                Plan::SelectNode(node) => format!("node {node}"),
                Plan::Provision { provisioner, .. } => format!("provision {provisioner}"),
            };
            assert!(got.starts_with(want), "{got} and not {want}");
        }
    }

    #[test]
    fn binds_a_matching_volume() {
        Case { volumes: vec![volume(Tree::Null)], ..Case::of(claim(tree! {})) }.check("bind v");
        Case::of(claim(tree! {})).check("Pending no persistent volumes available for this claim and no storage class");
        let gone = r#"Pending storageclass.storage.k8s.io "x" not found"#;
        Case::of(claim(tree! { "storageClassName" => "x" })).check(gone);
    }

    #[test]
    fn waits_for_first_consumer() {
        let case = |claim: Tree, pods: Vec<Arc<Tree>>| Case {
            volumes: vec![volume(Tree::Null)],
            classes: vec![class("late", "example.com/p", true)],
            pods,
            ..Case::of(claim)
        };
        let late = || claim(tree! { "storageClassName" => "late" });
        case(late(), vec![]).check("Pending waiting for first consumer to be created before binding");
        case(late(), vec![pod("a", "")]).check("Pending waiting for pod a to be scheduled");
        case(late(), vec![pod("a", ""), pod("b", "")]).check("Pending waiting for pods a,b to be scheduled");
        case(late(), vec![pod("a", "node")]).check("node node");
        case(annotated(late(), SELECTED_NODE, "node"), vec![]).check("provision example.com/p");
    }

    #[test]
    fn binds_volumes_reachable_from_the_selected_node() {
        let on = |hostname: &str| {
            let labels = tree! { "kubernetes.io/hostname" => hostname };
            Some(Arc::new(tree! { "metadata" => tree! { "labels" => labels } }))
        };
        let requirement = tree! { "key" => "kubernetes.io/hostname", "operator" => "In", "values" => list!["a"] };
        let terms = list![tree! { "matchExpressions" => list![requirement] }];
        let mut local = (*volume(Tree::Null)).clone();
        local.child("spec").set("storageClassName", "late");
        local.child("spec").set("nodeAffinity", tree! { "required" => tree! { "nodeSelectorTerms" => terms } });
        let case = |node: Option<Arc<Tree>>| Case {
            volumes: vec![Arc::new(local.clone())],
            classes: vec![class("late", "example.com/p", true)],
            node,
            ..Case::of(annotated(claim(tree! { "storageClassName" => "late" }), SELECTED_NODE, "node"))
        };
        case(on("a")).check("bind v");
        case(on("b")).check("provision example.com/p");
        case(None).check("provision example.com/p");
    }

    #[test]
    fn requests_external_provisioning() {
        let case =
            |claim: Tree, provisioner: &str| Case { classes: vec![class("s", provisioner, false)], ..Case::of(claim) };
        let open = || claim(tree! { "storageClassName" => "s" });
        case(open(), "example.com/p").check("provision example.com/p");
        case(annotated(open(), PROVISIONER, "example.com/p"), "example.com/p").check("Pending Waiting for a volume");
        let none = "Pending no volume plugin matched name: kubernetes.io/no-provisioner";
        case(open(), "kubernetes.io/no-provisioner").check(none);
    }

    #[test]
    fn assigns_the_default_class() {
        let default = |name: &str, created: &str| {
            let mut class = (*class(name, "example.com/p", false)).clone();
            let annotations = tree! { "storageclass.kubernetes.io/is-default-class" => "true" };
            class.child("metadata").set("annotations", annotations);
            class.child("metadata").set("creationTimestamp", created);
            Arc::new(class)
        };
        let classes = || {
            let old = default("a", "2024-01-01T00:00:00Z");
            vec![old, default("c", "2024-02-01T00:00:00Z"), default("b", "2024-02-01T00:00:00Z")]
        };
        Case { classes: classes(), ..Case::of(claim(tree! {})) }.check("class b");
        let none = claim(tree! { "storageClassName" => "" });
        Case { classes: classes(), ..Case::of(none) }.check("Pending no persistent volumes");
        Case { classes: classes(), volumes: vec![volume(Tree::Null)], ..Case::of(claim(tree! {})) }.check("bind v");
    }

    #[test]
    fn claims_can_name_a_volume() {
        let asking = || claim(tree! { "volumeName" => "v" });
        let case = |named: Option<Arc<Tree>>| Case { named, ..Case::of(asking()) };
        case(None).check("Pending ");
        case(Some(volume(Tree::Null))).check("bind v");
        case(Some(volume(tree! { "namespace" => "n", "name" => "c" }))).check("bind v");
        let other = tree! { "namespace" => "n", "name" => "other" };
        case(Some(volume(other))).check(r#"Pending volume "v" already bound to a different claim."#);
        let mut small = (*volume(Tree::Null)).clone();
        small.child("spec").set("capacity", tree! { "storage" => "1Mi" });
        let why = r#"Pending Cannot bind to requested volume "v": requested PV is too small"#;
        case(Some(Arc::new(small))).check(why);
    }

    #[test]
    fn bound_claims_can_lose_their_volume() {
        let bound = |name: &str| annotated(claim(tree! { "volumeName" => name }), BIND_COMPLETED, "yes");
        let case = |name: &str, named: Option<Arc<Tree>>| Case { named, ..Case::of(bound(name)) };
        case("", None).check("Lost Bound claim has lost reference to PersistentVolume.");
        case("v", None).check("Lost Bound claim has lost its PersistentVolume.");
        case("v", Some(volume(Tree::Null))).check("bind v");
        case("v", Some(volume(tree! { "uid" => "u" }))).check("bind v");
        case("v", Some(volume(tree! { "uid" => "x" }))).check("Lost Two claims are bound to the same volume");
    }
}
