//! VolumeBinding.

use api::Tree;
use api::selector::Selector;

use super::nodes::selects;
use super::volumes::{VolumeError, claim_name, class_name, not_found};
use super::{Case, Verdict, by_name, label, quantity};

pub(crate) fn volume_binding(case: &Case<'_>, node: &Tree) -> Verdict {
    match claims(case).and_then(|claims| sorted(case, claims)) {
        Ok(claims) => check_claims(case, node, &claims),
        Err(error) => error.into(),
    }
}

struct Claims<'a> {
    bound: Vec<&'a Tree>,
    /// To be bound or provisioned for the chosen node; smallest first.
    delayed: Vec<&'a Tree>,
}

fn claims<'a>(case: &Case<'a>) -> Result<Vec<&'a Tree>, VolumeError> {
    let volumes = case.pod.list("spec.volumes").iter();
    let names = volumes.filter_map(|volume| claim_name(case.pod, volume));
    names.map(|(name, is_own)| usable_claim(case, &name, is_own)).collect()
}

fn usable_claim<'a>(case: &Case<'a>, name: &str, is_own: bool) -> Result<&'a Tree, VolumeError> {
    let namespace = case.pod.str("metadata.namespace");
    let claim = case.world.claim(namespace, name).ok_or_else(|| match is_own {
        true => VolumeError::NotCreated(name.to_string()),
        false => not_found("persistentvolumeclaim", name),
    })?;
    if claim.str("status.phase") == "Lost" {
        return Err(VolumeError::Lost { claim: name.to_string(), volume: claim.str("spec.volumeName").to_string() });
    }
    if claim.at("metadata").has("deletionTimestamp") {
        return Err(VolumeError::Deleted(name.to_string()));
    }
    let uid = case.pod.str("metadata.uid");
    let owned = |owner: &Tree| owner.bool("controller") && owner.str("uid") == uid;
    if is_own && !claim.list("metadata.ownerReferences").iter().any(owned) {
        let (namespace, pod) = (namespace.to_string(), case.pod.str("metadata.name").to_string());
        return Err(VolumeError::NotOwner { namespace, claim: name.to_string(), pod });
    }
    Ok(claim)
}

fn is_bound(claim: &Tree) -> bool {
    let completed = claim.map("metadata.annotations").contains("pv.kubernetes.io/bind-completed");
    completed && !claim.str("spec.volumeName").is_empty()
}

fn sorted<'a>(case: &Case<'a>, claims: Vec<&'a Tree>) -> Result<Claims<'a>, VolumeError> {
    let (bound, unbound): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| is_bound(claim));
    let waits = |claim: &&&Tree| {
        let class = by_name(&case.world.classes, class_name(claim));
        let delayed = class.is_some_and(|class| class.str("volumeBindingMode") == "WaitForFirstConsumer");
        delayed && claim.str("spec.volumeName").is_empty()
    };
    let mut delayed: Vec<&Tree> = unbound.iter().filter(waits).copied().collect();
    if delayed.len() < unbound.len() {
        return Err(VolumeError::UnboundImmediate);
    }
    delayed.sort_by_key(|claim| size(claim));
    Ok(Claims { bound, delayed })
}

fn size(claim: &Tree) -> i64 {
    quantity(claim.at("spec.resources.requests.storage")).value()
}

fn check_claims(case: &Case<'_>, node: &Tree, claims: &Claims<'_>) -> Verdict {
    const FAR: &str = "node(s) didn't match PersistentVolume's node affinity";
    const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    let volume = |claim: &&Tree| by_name(&case.world.volumes, claim.str("spec.volumeName"));
    // The first failing claim gives the reason.
    let failing =
        claims.bound.iter().map(volume).find(|volume| volume.is_none_or(|volume| !is_accessible(volume, node)));
    let (far, gone) = (matches!(failing, Some(Some(_))), matches!(failing, Some(None)));
    let reasons = [far.then_some(FAR), unbound_reason(case, node, claims), gone.then_some(GONE)];
    let reasons: Vec<String> = reasons.into_iter().flatten().map(String::from).collect();
    Verdict::fits_or(reasons.is_empty(), || Verdict::Unresolvable(reasons.clone()))
}

fn is_accessible(volume: &Tree, node: &Tree) -> bool {
    let required = volume.at("spec.nodeAffinity.required");
    required.is_null() || selects(required, node)
}

fn unbound_reason(case: &Case<'_>, node: &Tree, claims: &Claims<'_>) -> Option<&'static str> {
    const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
    const SELECTED: &str = "volume.kubernetes.io/selected-node";
    let selected =
        |claim: &Tree| claim.map("metadata.annotations").get(SELECTED).and_then(Tree::as_str).map(String::from);
    let name = node.str("metadata.name");
    if claims.delayed.iter().any(|claim| selected(claim).is_some_and(|selected| selected != name)) {
        return Some(NO_VOLUME);
    }
    let mut taken: Vec<&str> = Vec::new();
    let mut made: Vec<&Tree> = claims.delayed.iter().filter(|claim| selected(claim).is_some()).copied().collect();
    for claim in claims.delayed.iter().filter(|claim| selected(claim).is_none()) {
        match matching(case, node, claim, &taken) {
            Some(volume) => taken.push(volume.str("metadata.name")),
            None => made.push(claim),
        }
    }
    for claim in made {
        let Some(class) = by_name(&case.world.classes, class_name(claim)) else { return Some(NO_VOLUME) };
        if !can_provision(class, node) {
            return Some(NO_VOLUME);
        }
        if !has_capacity(case, node, class, claim) {
            return Some("node(s) did not have enough free storage");
        }
    }
    None
}

/// The smallest matching volume; one reserved for the claim before any other, or none if that is not reachable from
/// the node.
fn matching<'a>(case: &Case<'a>, node: &Tree, claim: &Tree, taken: &[&str]) -> Option<&'a Tree> {
    let usable = |volume: &&Tree| {
        class_name(volume) == class_name(claim)
            && !taken.contains(&volume.str("metadata.name"))
            && capacity(volume) >= size(claim)
            && mode(volume) == mode(claim)
            && volume.str("spec.volumeAttributesClassName") == claim.str("spec.volumeAttributesClassName")
            && !volume.at("metadata").has("deletionTimestamp")
    };
    let volumes: Vec<&Tree> = case.world.volumes.iter().filter(usable).collect();
    if let Some(meant) = volumes.iter().find(|volume| is_reserved(volume, claim)) {
        return is_accessible(meant, node).then_some(*meant);
    }
    let open = volumes.into_iter().filter(|volume| serves(volume, claim) && is_accessible(volume, node));
    open.min_by_key(|volume| capacity(volume))
}

fn mode(object: &Tree) -> &str {
    match object.str("spec.volumeMode") {
        "" => "Filesystem",
        mode => mode,
    }
}

fn capacity(volume: &Tree) -> i64 {
    quantity(volume.at("spec.capacity.storage")).value()
}

fn is_reserved(volume: &Tree, claim: &Tree) -> bool {
    let meant = volume.at("spec.claimRef");
    let uid = meant.str("uid");
    meant.str("name") == claim.str("metadata.name")
        && meant.str("namespace") == claim.str("metadata.namespace")
        && (uid.is_empty() || uid == claim.str("metadata.uid"))
}

fn serves(volume: &Tree, claim: &Tree) -> bool {
    let selector = claim.at("spec.selector");
    let selected = selector.is_null()
        || Selector::from_object(selector).is_ok_and(|selector| selector.matches_map(volume.map("metadata.labels")));
    let modes = volume.list("spec.accessModes");
    !volume.at("spec").has("claimRef")
        && volume.str("status.phase") == "Available"
        && selected
        && claim.list("spec.accessModes").iter().all(|mode| modes.contains(mode))
}

fn can_provision(class: &Tree, node: &Tree) -> bool {
    let provisioner = class.str("provisioner");
    let topologies = class.list("allowedTopologies");
    let term = |term: &Tree| {
        term.list("matchLabelExpressions").iter().all(|expression| {
            let value = label(node, expression.str("key"));
            value.is_some_and(|value| expression.list("values").iter().any(|wanted| wanted.as_str() == Some(value)))
        })
    };
    !matches!(provisioner, "" | "kubernetes.io/no-provisioner")
        && (topologies.is_empty() || topologies.iter().any(term))
}

/// Checks the reported storage capacity, if the driver reports it.
fn has_capacity(case: &Case<'_>, node: &Tree, class: &Tree, claim: &Tree) -> bool {
    let driver = by_name(&case.world.csi_drivers, class.str("provisioner"));
    if !driver.is_some_and(|driver| driver.bool("spec.storageCapacity")) {
        return true;
    }
    let fits = |capacity: &Tree| {
        let most = if capacity.has("maximumVolumeSize") { "maximumVolumeSize" } else { "capacity" };
        let topology = capacity.at("nodeTopology");
        let here = Selector::from_object(topology)
            .is_ok_and(|selector| !topology.is_null() && selector.matches_map(node.map("metadata.labels")));
        capacity.str("storageClassName") == class.str("metadata.name")
            && capacity.has(most)
            && quantity(capacity.at(most)).value() >= size(claim)
            && here
    };
    case.world.capacities.iter().any(fits)
}
