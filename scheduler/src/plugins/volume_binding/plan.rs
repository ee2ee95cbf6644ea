//! Plans which volumes the claims of a pod get on a node.

use std::sync::Arc;

use api::Str;

use super::assumed::AssumeCache;
use super::reject;
use crate::framework::Rejection;
use crate::plugins::volumes::not_found;
use crate::snapshot::Storage;
use podmodel::storage::{BindingMode, Claim, PersistentVolume, StorageClass};
use podmodel::{Node, Pod, Requirement, Selector, Volume};

const FAR: &str = "node(s) didn't match PersistentVolume's node affinity";
const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// Why a claim that waits for its first consumer cannot get a volume on a node, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unbindable {
    NoVolume,
    NoSpace,
}

impl Unbindable {
    fn reason(self) -> &'static str {
        match self {
            Unbindable::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Unbindable::NoSpace => "node(s) did not have enough free storage",
        }
    }
}

/// The writes for a pod on its node.
#[derive(Default)]
pub(crate) struct Decision {
    /// A claim and its volume.
    pub bindings: Vec<(Arc<Claim>, Arc<PersistentVolume>)>,
    /// Claims whose volumes are provisioned.
    pub provisions: Vec<Arc<Claim>>,
}

impl Decision {
    pub(crate) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// The state of a pod's claims, independent of the node.
#[derive(Clone)]
pub(super) struct Claims {
    /// The volumes of bound claims; None if deleted.
    bound: Vec<Option<Arc<PersistentVolume>>>,
    /// Smallest first.
    delayed: Vec<UnboundClaim>,
}

#[derive(Clone)]
struct UnboundClaim {
    claim: Arc<Claim>,
    /// The node that the volume is already provisioned for.
    selected: Option<Str>,
    /// Smallest first.
    open: Vec<Arc<PersistentVolume>>,
    /// A volume reserved for this claim; no other is used then.
    meant: Option<Arc<PersistentVolume>>,
    provisioning: Option<Provisioning>,
}

/// The conditions for provisioning a volume.
#[derive(Clone)]
struct Provisioning {
    class: Arc<StorageClass>,
    /// Nodes with enough capacity; None if the driver does not report it.
    room: Option<Vec<Selector>>,
}

impl Claims {
    pub(super) fn of(storage: &Storage, assumed: &AssumeCache, pod: &Pod) -> Result<Claims, Rejection> {
        let volumes = pod.spec.volumes.iter().filter_map(|volume| Some((volume, volume.claim(&pod.name)?)));
        let claims =
            volumes.map(|(volume, name)| usable(storage, pod, volume, &name)).collect::<Result<Vec<_>, _>>()?;
        let (bound, open): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| claim.is_bound);
        let classes: Vec<_> = open
            .iter()
            .map(|claim| delayed_class(storage, claim))
            .collect::<Option<Vec<_>>>()
            .map_or_else(|| reject("pod has unbound immediate PersistentVolumeClaims"), Ok)?;
        let delay =
            |(claim, class): (&Arc<Claim>, &Arc<StorageClass>)| UnboundClaim::of(storage, assumed, claim, class);
        let mut delayed: Vec<UnboundClaim> = open.into_iter().zip(classes).map(delay).collect();
        delayed.sort_by_key(|one| one.claim.wanted.size);
        let volume_of = |claim: &&Arc<Claim>| storage.volume(&claim.volume_name).cloned();
        Ok(Claims { bound: bound.iter().map(volume_of).collect(), delayed })
    }

    pub(super) fn decide(&self, node: &Node) -> Result<Decision, Rejection> {
        // The first failing claim gives the reason.
        let fails =
            |volume: &&Option<Arc<PersistentVolume>>| volume.as_ref().is_none_or(|one| !one.is_accessible_from(node));
        let failing = self.bound.iter().find(fails);
        let (far, gone) = (matches!(failing, Some(Some(_))), matches!(failing, Some(None)));
        let delayed = self.decide_delayed(node);
        let reasons = [far.then_some(FAR), delayed.as_ref().err().map(|why| why.reason()), gone.then_some(GONE)];
        let reasons: Vec<_> = reasons.into_iter().flatten().map(Into::into).collect();
        match delayed {
            Ok(decision) if reasons.is_empty() => Ok(decision),
            _ => Err(Rejection { is_final: true, is_error: false, reasons: reasons.into() }),
        }
    }

    fn decide_delayed(&self, node: &Node) -> Result<Decision, Unbindable> {
        if self.delayed.iter().any(|one| one.selected.as_ref().is_some_and(|selected| *selected != node.name)) {
            return Err(Unbindable::NoVolume);
        }
        let mut decision = Decision::default();
        let (selected, open): (Vec<_>, Vec<_>) = self.delayed.iter().partition(|one| one.selected.is_some());
        let mut made: Vec<&UnboundClaim> = selected;
        for one in open {
            match one.volume(node, &decision.bindings) {
                Some(volume) => decision.bindings.push((one.claim.clone(), volume)),
                None => made.push(one),
            }
        }
        for one in made {
            one.can_provision(node)?;
            decision.provisions.push(one.claim.clone());
        }
        Ok(decision)
    }
}

impl UnboundClaim {
    fn of(storage: &Storage, assumed: &AssumeCache, claim: &Arc<Claim>, class: &Arc<StorageClass>) -> UnboundClaim {
        let owner = |volume: &PersistentVolume| assumed.owner_of(&volume.name);
        let usable = |volume: &&Arc<PersistentVolume>| {
            volume.satisfies(claim) && owner(volume).is_none_or(|owner| *owner == *claim.key)
        };
        let is_meant = |volume: &&&Arc<PersistentVolume>| volume.is_reserved_for(claim) || owner(volume).is_some();
        let volumes: Vec<&Arc<PersistentVolume>> = storage.volumes_of(&claim.wanted.class).filter(usable).collect();
        let mut open: Vec<Arc<PersistentVolume>> =
            volumes.iter().filter(|volume| volume.serves(claim)).map(|volume| Arc::clone(volume)).collect();
        open.sort_by_key(|volume| volume.offered.size);
        UnboundClaim {
            selected: claim.selected_node.clone().or_else(|| assumed.node_of(&claim.key).map(Str::new)),
            meant: volumes.iter().find(is_meant).map(|volume| Arc::clone(volume)),
            provisioning: class.is_provisioned().then(|| Provisioning::of(storage, class, claim)),
            open,
            claim: claim.clone(),
        }
    }

    fn volume(&self, node: &Node, taken: &[(Arc<Claim>, Arc<PersistentVolume>)]) -> Option<Arc<PersistentVolume>> {
        let is_free = |volume: &PersistentVolume| !taken.iter().any(|(_, other)| other.name == volume.name);
        let found = match self.meant.as_ref().filter(|volume| is_free(volume)) {
            Some(meant) => Some(meant).filter(|volume| volume.is_accessible_from(node)),
            None => self.open.iter().find(|volume| is_free(volume) && volume.is_accessible_from(node)),
        };
        found.cloned()
    }

    fn can_provision(&self, node: &Node) -> Result<(), Unbindable> {
        let Some(provisioning) = &self.provisioning else { return Err(Unbindable::NoVolume) };
        let holds = |term: &Vec<Requirement>| term.iter().all(|one| one.matches(node.labels.get(&one.key)));
        let topologies = &provisioning.class.topologies;
        if !topologies.is_empty() && !topologies.iter().any(holds) {
            return Err(Unbindable::NoVolume);
        }
        let is_near = |selectors: &Vec<Selector>| selectors.iter().any(|one| one.matches(&node.labels));
        if provisioning.room.as_ref().is_none_or(is_near) { Ok(()) } else { Err(Unbindable::NoSpace) }
    }
}

impl Provisioning {
    fn of(storage: &Storage, class: &Arc<StorageClass>, claim: &Claim) -> Provisioning {
        let room = || {
            let enough = |most: i64| most >= claim.wanted.size;
            let near = storage.capacities().filter(|room| room.class == class.name && room.most.is_some_and(enough));
            near.map(|room| room.nodes.clone()).collect()
        };
        Provisioning { class: class.clone(), room: storage.reports_capacity(&class.provisioner).then(room) }
    }
}

/// The claim of a volume, or why the pod cannot use it.
fn usable<'a>(storage: &'a Storage, pod: &Pod, volume: &Volume, name: &str) -> Result<&'a Arc<Claim>, Rejection> {
    let is_own = matches!(volume, Volume::Ephemeral { .. });
    let Some(claim) = storage.claim(&pod.namespace, name) else {
        if is_own {
            return reject(format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            ));
        }
        return Err(not_found("persistentvolumeclaim", name));
    };
    if claim.is_lost {
        let volume = &claim.volume_name;
        return reject(format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""));
    }
    if claim.is_terminating {
        return reject(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    if is_own && claim.owner.as_ref() != Some(&pod.uid) {
        let Pod { namespace, name: pod, .. } = pod;
        return reject(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"));
    }
    Ok(claim)
}

/// The class of a claim with delayed binding.
fn delayed_class<'a>(storage: &'a Storage, claim: &Claim) -> Option<&'a Arc<StorageClass>> {
    let class = storage.class(&claim.wanted.class)?;
    let waits = class.binding_mode == BindingMode::WaitForFirstConsumer && claim.volume_name.is_empty();
    waits.then_some(class)
}
