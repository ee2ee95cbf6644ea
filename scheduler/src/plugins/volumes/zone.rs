//! Volumes with zone labels are used on nodes of that zone.

use std::sync::Arc;

use api::Str;

use super::{is_own_claim, named_claims, not_found};
use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::{Kind, NodeState};
use podmodel::storage::{BindingMode, Claim, PersistentVolume};
use podmodel::{Labels, Pod};

pub(crate) struct VolumeZone;

/// Deprecated zone and region labels with their successors.
const KEYS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The zones of volumes: indexes of [`KEYS`] with the allowed values.
#[derive(Clone)]
struct Zones(Vec<(usize, Vec<Str>)>);

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        match volumes(cycle) {
            Err(rejection) => PreFilter::Refuse(rejection),
            Ok(volumes) => {
                let zones: Vec<_> = volumes.iter().flat_map(|volume| zones(volume)).collect();
                if zones.is_empty() { PreFilter::Skip } else { PreFilter::Check(Slot::new(Zones(zones))) }
            }
        }
    }

    fn filter(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(Zones(zones)) = slot.get::<Zones>() else { return Ok(()) };
        let labels = &node.node.labels;
        // A cluster with one zone need not label its nodes.
        let says_none = KEYS.iter().all(|(key, _)| labels.get(key).is_none());
        match says_none || zones.iter().all(|(at, values)| is_in(labels, KEYS[*at], values)) {
            true => Ok(()),
            false => Err(Rejection::unresolvable("node(s) had no available volume zone")),
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged { old, new } => old.labels != new.labels,
            Event::Object { kind: Kind::StorageClass | Kind::PersistentVolume, new, .. } => new.is_some(),
            Event::Object { kind: Kind::PersistentVolumeClaim, new, .. } => is_own_claim(pod, *new),
            _ => false,
        }
    }
}

fn is_in(labels: &Labels, (key, newer): (&str, &str), values: &[Str]) -> bool {
    let zone = labels.get(key).or_else(|| labels.get(newer));
    zone.is_some_and(|zone| values.iter().any(|value| value == zone))
}

fn zones(volume: &PersistentVolume) -> Vec<(usize, Vec<Str>)> {
    let values = |key: &str| -> Option<Vec<Str>> {
        let text = volume.labels.get(key)?;
        Some(text.split("__").map(|value| Str::new(value.trim())).collect())
    };
    KEYS.iter().enumerate().filter_map(|(at, (key, _))| Some((at, values(key)?))).collect()
}

/// The volumes of bound claims; claims with delayed binding have none yet.
fn volumes<'a>(cycle: Cycle<'a>) -> Result<Vec<&'a Arc<PersistentVolume>>, Rejection> {
    let storage = &cycle.snapshot.storage;
    let mut volumes = Vec::new();
    for name in named_claims(cycle.pod) {
        let claim = storage.claim(&cycle.pod.namespace, name);
        let claim = claim.ok_or_else(|| not_found("persistentvolumeclaim", name))?;
        let bound = &claim.volume_name;
        if bound.is_empty() {
            will_be_bound(cycle, claim)?;
            continue;
        }
        let volume = storage.volume(bound);
        volumes.push(volume.ok_or_else(|| not_found("persistentvolume", bound))?);
    }
    Ok(volumes)
}

fn will_be_bound(cycle: Cycle, claim: &Claim) -> Result<(), Rejection> {
    let name = &claim.wanted.class;
    if name.is_empty() {
        return Err(Rejection::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
    }
    let class = cycle.snapshot.storage.class(name);
    match class.ok_or_else(|| not_found("storageclass.storage.k8s.io", name))?.binding_mode {
        BindingMode::WaitForFirstConsumer => Ok(()),
        BindingMode::Unset => {
            Err(Rejection::unresolvable(format!("VolumeBindingMode not set for StorageClass \"{name}\"")))
        }
        BindingMode::Immediate => Err(Rejection::unresolvable("PersistentVolume had no name")),
    }
}
