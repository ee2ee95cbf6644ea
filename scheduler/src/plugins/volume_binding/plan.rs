//! Which volumes a pod's claims get on a node.

use std::sync::Arc;

use api::quantity::Quantity;
use api::{Str, Tree};

use super::assumed::{Assumed, key};
use super::refuse;
use crate::framework::Refusal;
use crate::model::{Labels, Node, NodeSelector, Pod, Requirement, Selector, Volume};
use crate::plugins::volumes::{claim, class_name, not_found};
use crate::snapshot::{Kind, Objects};

pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

const FAR: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// What is to be written for a pod on its node.
#[derive(Default)]
pub struct Decision {
    /// A claim and the volume that it gets.
    pub bindings: Vec<(Arc<Tree>, Arc<Tree>)>,
    /// Claims whose volumes are to be made.
    pub provisions: Vec<Arc<Tree>>,
}

impl Decision {
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// All that is known of a pod's claims, for any node.
#[derive(Clone)]
pub struct Claims {
    /// By bound claim: from where its volume can be reached, or that it is gone.
    bound: Vec<Option<Reach>>,
    /// The smallest first.
    delayed: Vec<Delayed>,
}

/// None from everywhere.
type Reach = Option<NodeSelector>;

#[derive(Clone)]
struct Delayed {
    claim: Arc<Tree>,
    /// The node that the volume is made for already.
    selected: Option<Str>,
    /// The smallest first.
    open: Vec<Candidate>,
    /// One that was meant for this claim; no other will do then.
    meant: Option<Candidate>,
    make: Option<Make>,
}

#[derive(Clone)]
struct Candidate {
    volume: Arc<Tree>,
    reach: Reach,
}

/// What making a volume depends on.
#[derive(Clone)]
struct Make {
    /// Terms of which one must hold; none for anywhere.
    topologies: Vec<Vec<Requirement>>,
    /// Nodes near which there is room; None where nobody says.
    room: Option<Vec<Selector>>,
}

impl Claims {
    pub fn of(objects: &dyn Objects, assumed: &Assumed, pod: &Pod) -> Result<Claims, Refusal> {
        let volumes = pod.spec.volumes.iter().filter_map(|volume| Some((volume, volume.claim(&pod.name)?)));
        let claims =
            volumes.map(|(volume, name)| usable(objects, pod, volume, &name)).collect::<Result<Vec<_>, _>>()?;
        let (bound, open): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| is_bound(claim));
        let classes: Vec<_> = open
            .iter()
            .map(|claim| delayed_class(objects, claim))
            .collect::<Option<Vec<_>>>()
            .map_or_else(|| refuse("pod has unbound immediate PersistentVolumeClaims"), Ok)?;
        let all = if open.is_empty() { Vec::new() } else { objects.all(Kind::PersistentVolume) };
        let delay = |(claim, class): (Arc<Tree>, Arc<Tree>)| Delayed::of(objects, assumed, &all, claim, &class);
        let mut delayed: Vec<Delayed> = open.into_iter().zip(classes).map(delay).collect();
        delayed.sort_by_key(|one| size(&one.claim));
        let reach_of =
            |claim: &Arc<Tree>| Some(reach(&*objects.get(Kind::PersistentVolume, claim.str("spec.volumeName"))?));
        Ok(Claims { bound: bound.iter().map(reach_of).collect(), delayed })
    }

    pub fn decide(&self, node: &Node) -> Result<Decision, Refusal> {
        // The first claim that fails says why.
        let fails = |volume: &&Option<Reach>| volume.as_ref().is_none_or(|reach| !reaches(reach, node));
        let failing = self.bound.iter().find(fails);
        let (far, gone) = (matches!(failing, Some(Some(_))), matches!(failing, Some(None)));
        let delayed = self.decide_delayed(node);
        let reasons = [far.then_some(FAR), delayed.as_ref().err().copied(), gone.then_some(GONE)];
        let reasons: Vec<_> = reasons.into_iter().flatten().map(Into::into).collect();
        match delayed {
            Ok(decision) if reasons.is_empty() => Ok(decision),
            _ => Err(Refusal { is_final: true, reasons: reasons.into() }),
        }
    }

    fn decide_delayed(&self, node: &Node) -> Result<Decision, &'static str> {
        if self.delayed.iter().any(|one| one.selected.as_ref().is_some_and(|selected| *selected != node.name)) {
            return Err(NO_VOLUME);
        }
        let mut decision = Decision::default();
        let (selected, open): (Vec<_>, Vec<_>) = self.delayed.iter().partition(|one| one.selected.is_some());
        let mut made: Vec<&Delayed> = selected;
        for one in open {
            match one.volume(node, &decision.bindings) {
                Some(volume) => decision.bindings.push((one.claim.clone(), volume)),
                None => made.push(one),
            }
        }
        for one in made {
            one.can_make(node)?;
            decision.provisions.push(one.claim.clone());
        }
        Ok(decision)
    }
}

impl Delayed {
    fn of(objects: &dyn Objects, assumed: &Assumed, all: &[Arc<Tree>], claim: Arc<Tree>, class: &Tree) -> Delayed {
        let claim_key = key(&claim);
        let annotated = claim.map("metadata.annotations").get(SELECTED_NODE).and_then(Tree::as_str);
        let owner = |volume: &Tree| assumed.owner_of(volume.str("metadata.name")).map(Str::new);
        let usable =
            |volume: &&Arc<Tree>| is_alike(volume, &claim) && owner(volume).is_none_or(|owner| owner == claim_key);
        let candidate = |volume: &Arc<Tree>| Candidate { volume: volume.clone(), reach: reach(volume) };
        let is_meant = |volume: &&&Arc<Tree>| is_meant(volume, &claim) || owner(volume).is_some();
        let volumes: Vec<&Arc<Tree>> = all.iter().filter(usable).collect();
        let mut open: Vec<Candidate> =
            volumes.iter().filter(|volume| serves(volume, &claim)).map(|volume| candidate(volume)).collect();
        open.sort_by_key(|one| capacity(&one.volume));
        Delayed {
            selected: annotated.or(assumed.node_of(&claim_key)).map(Str::new),
            meant: volumes.iter().find(is_meant).map(|volume| candidate(volume)),
            make: Make::of(objects, class, &claim),
            open,
            claim,
        }
    }

    fn volume(&self, node: &Node, taken: &[(Arc<Tree>, Arc<Tree>)]) -> Option<Arc<Tree>> {
        let is_free =
            |volume: &Tree| !taken.iter().any(|(_, other)| other.str("metadata.name") == volume.str("metadata.name"));
        let fits = |one: &&Candidate| is_free(&one.volume) && reaches(&one.reach, node);
        let found = match self.meant.as_ref().filter(|one| is_free(&one.volume)) {
            Some(meant) => Some(meant).filter(|one| reaches(&one.reach, node)),
            None => self.open.iter().find(fits),
        };
        found.map(|one| one.volume.clone())
    }

    fn can_make(&self, node: &Node) -> Result<(), &'static str> {
        let Some(make) = &self.make else { return Err(NO_VOLUME) };
        let holds = |term: &Vec<Requirement>| term.iter().all(|one| one.matches(node.labels.get(&one.key)));
        if !make.topologies.is_empty() && !make.topologies.iter().any(holds) {
            return Err(NO_VOLUME);
        }
        let is_near = |selectors: &Vec<Selector>| selectors.iter().any(|one| one.matches(&node.labels));
        if make.room.as_ref().is_none_or(is_near) { Ok(()) } else { Err(NO_SPACE) }
    }
}

impl Make {
    /// None where nobody makes volumes of the class.
    fn of(objects: &dyn Objects, class: &Tree, claim: &Tree) -> Option<Make> {
        let provisioner = class.str("provisioner");
        if matches!(provisioner, "" | "kubernetes.io/no-provisioner") {
            return None;
        }
        let requirement = |one: &Tree| {
            let values = one.list("values").iter().filter_map(Tree::as_str).map(Str::new).collect();
            Requirement::new(one.str("key"), crate::model::Operator::In, values)
        };
        let term = |term: &Tree| term.list("matchLabelExpressions").iter().map(requirement).collect();
        let driver = objects.get(Kind::CsiDriver, provisioner);
        let tells = driver.is_some_and(|driver| driver.bool("spec.storageCapacity"));
        Some(Make {
            topologies: class.list("allowedTopologies").iter().map(term).collect(),
            room: tells.then(|| room(objects, class.str("metadata.name"), size(claim))),
        })
    }
}

fn room(objects: &dyn Objects, class: &str, wanted: i64) -> Vec<Selector> {
    let fits = |capacity: &&Arc<Tree>| {
        let most = if capacity.has("maximumVolumeSize") { "maximumVolumeSize" } else { "capacity" };
        capacity.str("storageClassName") == class && capacity.has(most) && amount(capacity.at(most)) >= wanted
    };
    let capacities = objects.all(Kind::CsiStorageCapacity);
    capacities.iter().filter(fits).map(|capacity| Selector::read(capacity.at("nodeTopology"))).collect()
}

/// A claim that a pod can use; why not, where it cannot.
fn usable(objects: &dyn Objects, pod: &Pod, volume: &Volume, name: &str) -> Result<Arc<Tree>, Refusal> {
    let is_own = matches!(volume, Volume::Ephemeral { .. });
    let Some(claim) = claim(objects, &pod.namespace, name) else {
        if is_own {
            return refuse(format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            ));
        }
        return Err(not_found("persistentvolumeclaim", name));
    };
    if claim.str("status.phase") == "Lost" {
        let volume = claim.str("spec.volumeName");
        return refuse(format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""));
    }
    if claim.at("metadata").has("deletionTimestamp") {
        return refuse(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    let owned = |owner: &Tree| owner.bool("controller") && owner.str("uid") == pod.uid;
    if is_own && !claim.list("metadata.ownerReferences").iter().any(owned) {
        let Pod { namespace, name: pod, .. } = pod;
        return refuse(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"));
    }
    Ok(claim)
}

pub fn is_bound(claim: &Tree) -> bool {
    claim.map("metadata.annotations").contains(BIND_COMPLETED) && !claim.str("spec.volumeName").is_empty()
}

/// The class of a claim that waits for its first user.
fn delayed_class(objects: &dyn Objects, claim: &Tree) -> Option<Arc<Tree>> {
    let class = objects.get(Kind::StorageClass, class_name(claim))?;
    let waits = class.str("volumeBindingMode") == "WaitForFirstConsumer" && claim.str("spec.volumeName").is_empty();
    waits.then_some(class)
}

fn amount(quantity: &Tree) -> i64 {
    match quantity {
        Tree::Str(text) => Quantity::parse(text).map_or(0, |quantity| quantity.value()),
        other => other.as_int().unwrap_or(0),
    }
}

fn size(claim: &Tree) -> i64 {
    amount(claim.at("spec.resources.requests.storage"))
}

fn capacity(volume: &Tree) -> i64 {
    amount(volume.at("spec.capacity.storage"))
}

fn reach(volume: &Tree) -> Reach {
    let required = volume.at("spec.nodeAffinity.required");
    (!required.is_null()).then(|| NodeSelector::read(required))
}

fn reaches(reach: &Reach, node: &Node) -> bool {
    reach.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
}

fn mode(object: &Tree) -> &str {
    match object.str("spec.volumeMode") {
        "" => "Filesystem",
        mode => mode,
    }
}

/// Whether a volume is of the claim's kind and large enough.
fn is_alike(volume: &Tree, claim: &Tree) -> bool {
    let attributes = "spec.volumeAttributesClassName";
    class_name(volume) == class_name(claim)
        && capacity(volume) >= size(claim)
        && mode(volume) == mode(claim)
        && volume.str(attributes) == claim.str(attributes)
        && !volume.at("metadata").has("deletionTimestamp")
}

fn is_meant(volume: &Tree, claim: &Tree) -> bool {
    let reference = volume.at("spec.claimRef");
    let uid = reference.str("uid");
    reference.str("name") == claim.str("metadata.name")
        && reference.str("namespace") == claim.str("metadata.namespace")
        && (uid.is_empty() || uid == claim.str("metadata.uid"))
}

/// Whether a volume that belongs to nobody will do.
fn serves(volume: &Tree, claim: &Tree) -> bool {
    let selector = claim.at("spec.selector");
    let labels = || Labels::read(volume.map("metadata.labels"));
    let modes = volume.list("spec.accessModes");
    !volume.at("spec").has("claimRef")
        && volume.str("status.phase") == "Available"
        && claim.list("spec.accessModes").iter().all(|mode| modes.contains(mode))
        && (selector.is_null() || Selector::read(selector).matches(&labels()))
}
