//! The requirements of a pod for its node. Pods of one template have equal specs and share one: whatever a plugin
//! finds out from a spec and a node alone holds for all of them.

use api::{Str, Tree};

use super::{
    ContainerResources, HostPort, Labels, NodeSelector, NodeTerm, PodAffinity, PodClaim, Resources, SpreadConstraint,
    Toleration, Volume, claims, features, requests,
};

/// The parts of a pod's spec that equal pods share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Spec {
    pub requests: Resources,
    /// With defaults for containers without requests.
    pub nonzero_milli_cpu: i64,
    pub nonzero_memory: i64,
    pub ports: Vec<HostPort>,
    pub node_selector: Labels,
    pub node_affinity: Option<NodeSelector>,
    pub preferred_node_affinity: Vec<(i64, NodeTerm)>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<SpreadConstraint>,
    pub affinity: PodAffinity,
    pub anti_affinity: PodAffinity,
    pub volumes: Vec<Volume>,
    /// Of all containers, init containers and volumes, as written.
    pub images: Vec<Str>,
    pub resource_claims: Vec<PodClaim>,
    /// Its containers, if one of them requests an extended resource.
    pub containers: Vec<ContainerResources>,
    /// What not every node can do.
    pub needed_features: Vec<&'static str>,
}

impl Spec {
    /// Reads the spec of a pod.
    pub fn read(pod: &Tree, namespace: &str, labels: &Labels) -> Spec {
        let spec = pod.at("spec");
        let requests = requests::requests(pod);
        let (nonzero_milli_cpu, nonzero_memory) = requests::nonzero(pod, &requests);
        let node = spec.at("affinity.nodeAffinity");
        let required = node.at("requiredDuringSchedulingIgnoredDuringExecution");
        let weighted = |one: &Tree| (one.int("weight").unwrap_or(0), NodeTerm::read(one.at("preference")));
        let preferred = node.list("preferredDuringSchedulingIgnoredDuringExecution").iter();
        let pods = |list: &str| PodAffinity::read(spec.at("affinity").at(list), namespace, labels);
        let spread = spec.list("topologySpreadConstraints").iter();
        Spec {
            requests,
            nonzero_milli_cpu,
            nonzero_memory,
            ports: ports(spec),
            node_selector: Labels::read(spec.map("nodeSelector")),
            node_affinity: (!required.is_null()).then(|| NodeSelector::read(required)),
            preferred_node_affinity: preferred.map(weighted).collect(),
            tolerations: spec.list("tolerations").iter().map(Toleration::read).collect(),
            spread: spread.map(|constraint| SpreadConstraint::read(constraint, labels)).collect(),
            affinity: pods("podAffinity"),
            anti_affinity: pods("podAntiAffinity"),
            volumes: spec.list("volumes").iter().filter_map(Volume::read).collect(),
            images: images(spec),
            resource_claims: spec.list("resourceClaims").iter().map(PodClaim::read).collect(),
            containers: claims::containers(spec),
            needed_features: features::needed(spec),
        }
    }

    /// Whether a node is among those that the pod selects and requires.
    pub fn selects(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.has(key, value))
            && self.node_affinity.as_ref().is_none_or(|selector| selector.matches(name, labels))
    }
}

fn images(spec: &Tree) -> Vec<Str> {
    let volumes = spec.list("volumes").iter().filter(|volume| volume.has("image"));
    let volumes = volumes.map(|volume| volume.str("image.reference"));
    containers(spec).map(|container| container.str("image")).chain(volumes).map(Str::new).collect()
}

fn containers(spec: &Tree) -> impl Iterator<Item = &Tree> {
    spec.list("initContainers").iter().chain(spec.list("containers"))
}

/// Of containers, and of init containers that keep running.
fn ports(spec: &Tree) -> Vec<HostPort> {
    let stays = |one: &&Tree| one.str("restartPolicy") == "Always";
    let sidecars = spec.list("initContainers").iter().filter(stays);
    let all = sidecars.chain(spec.list("containers"));
    all.flat_map(|container| container.list("ports")).filter_map(HostPort::read).collect()
}
