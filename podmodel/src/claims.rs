//! What a pod requests of devices: its resource claims, and the extended resources of its containers.

use api::{Str, Tree};

use crate::Resources;

/// A resource claim of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodClaim {
    /// The name within the pod.
    pub name: Str,
    pub source: ClaimSource,
}

/// Where the claim comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimSource {
    /// The claim of this name.
    Claim(Str),
    /// A claim that is created from this template; the pod's status has its name.
    Template(Str),
    /// A source that a newer version may know.
    Unknown,
}

impl PodClaim {
    /// Reads an entry of `spec.resourceClaims`.
    pub fn read(claim: &Tree) -> PodClaim {
        let text = |field: &str| claim.at(field).as_str().map(Str::new);
        let source = match (text("resourceClaimName"), text("resourceClaimTemplateName")) {
            (Some(name), _) => ClaimSource::Claim(name),
            (None, Some(name)) => ClaimSource::Template(name),
            (None, None) => ClaimSource::Unknown,
        };
        PodClaim { name: Str::new(claim.str("name")), source }
    }
}

/// The claim that was created for a claim of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaimStatus {
    /// The name within the pod.
    pub name: Str,
    /// None if the pod needs no claim.
    pub claim: Option<Str>,
}

impl PodClaimStatus {
    /// Reads an entry of `status.resourceClaimStatuses`.
    pub fn read(status: &Tree) -> PodClaimStatus {
        let claim = status.at("resourceClaimName").as_str().map(Str::new);
        PodClaimStatus { name: Str::new(status.str("name")), claim }
    }
}

/// The requests of one container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerResources {
    pub name: Str,
    pub is_init: bool,
    /// An init container that keeps running.
    pub is_sidecar: bool,
    /// Amounts by resource, sorted by name.
    pub requests: Vec<(Str, i64)>,
}

/// The containers of a pod, init containers first; none if no container requests an extended resource.
pub(crate) fn containers(spec: &Tree) -> Vec<ContainerResources> {
    let init = spec.list("initContainers").iter().map(|container| (container, true));
    let all = init.chain(spec.list("containers").iter().map(|container| (container, false)));
    let all: Vec<ContainerResources> = all.map(|(container, is_init)| read(container, is_init)).collect();
    let is_extended = |name: &Str| name.contains('/');
    if all.iter().any(|one| one.requests.iter().any(|(name, _)| is_extended(name))) { all } else { Vec::new() }
}

fn read(container: &Tree, is_init: bool) -> ContainerResources {
    let requests = container.map("resources.requests");
    let amounts = Resources::read(requests);
    let mut requests: Vec<(Str, i64)> = requests.keys().map(|name| (Str::new(name), amounts.get(name))).collect();
    requests.sort();
    let is_sidecar = is_init && container.str("restartPolicy") == "Always";
    ContainerResources { name: Str::new(container.str("name")), is_init, is_sidecar, requests }
}
