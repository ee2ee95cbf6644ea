//! Disks that only one node can use, and claims that only one pod can use.

use std::sync::Arc;

use api::Str;

use super::{is_own_claim, named_claims, not_found};
use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::{Kind, NodeState};
use podmodel::{Pod, Volume};

const NO_DISK: &str = "node(s) had no available disk";
const CLAIM_IN_USE: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

pub(crate) struct VolumeRestrictions;

/// ReadWriteOncePod claims of the pod, and how often others use them.
#[derive(Clone)]
struct ExclusiveClaims {
    names: Vec<Str>,
    uses: i64,
}

impl ExclusiveClaims {
    fn count_uses(&self, cycle: Cycle, other: &Pod) -> i64 {
        if other.namespace != cycle.pod.namespace {
            return 0;
        }
        named_claims(other).filter(|name| self.names.contains(name)).count() as i64
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if cycle.pod.spec.volumes.is_empty() {
            return PreFilter::Skip;
        }
        let mut exclusive = match exclusive_claims(cycle) {
            Ok(names) => ExclusiveClaims { names, uses: 0 },
            Err(rejection) => return PreFilter::Refuse(rejection),
        };
        if !exclusive.names.is_empty() {
            let pods = cycle.snapshot.nodes().flat_map(|node| &node.pods);
            exclusive.uses = pods.map(|pod| exclusive.count_uses(cycle, pod)).sum();
        }
        let has_disk = cycle.pod.spec.volumes.iter().any(is_disk);
        match has_disk || exclusive.uses > 0 {
            true => PreFilter::Check(Slot::new(exclusive)),
            false => PreFilter::Skip,
        }
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let disks = || cycle.pod.spec.volumes.iter().filter(|volume| is_disk(volume));
        let conflicts = |pod: &Arc<Pod>| disks().any(|one| pod.spec.volumes.iter().any(|other| conflict(one, other)));
        if node.pods.iter().any(conflicts) {
            return Err(Rejection::unschedulable(NO_DISK));
        }
        match slot.get::<ExclusiveClaims>() {
            Some(exclusive) if exclusive.uses > 0 => Err(Rejection::unschedulable(CLAIM_IN_USE)),
            _ => Ok(()),
        }
    }

    fn add_pod(&self, cycle: Cycle, slot: &mut Slot, added: &Arc<Pod>, _node: &NodeState) {
        if let Some(exclusive) = slot.get_mut::<ExclusiveClaims>() {
            exclusive.uses += exclusive.count_uses(cycle, added);
        }
    }

    fn remove_pod(&self, cycle: Cycle, slot: &mut Slot, removed: &Arc<Pod>, _node: &NodeState) {
        if let Some(exclusive) = slot.get_mut::<ExclusiveClaims>() {
            exclusive.uses -= exclusive.count_uses(cycle, removed);
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            // Pods of a deleted node release their claims.
            Event::NodeAdded(_) | Event::NodeDeleted(_) => true,
            Event::PodDeleted(gone) => {
                let freed = |one: &Volume| gone.spec.volumes.iter().any(|other| conflict(one, other));
                let same_claim = || named_claims(pod).any(|name| named_claims(gone).any(|other| other == name));
                pod.spec.volumes.iter().any(freed) || (gone.namespace == pod.namespace && same_claim())
            }
            Event::Object { kind: Kind::PersistentVolumeClaim, new, .. } => is_own_claim(pod, *new),
            _ => false,
        }
    }
}

fn exclusive_claims(cycle: Cycle) -> Result<Vec<Str>, Rejection> {
    let mut names = Vec::new();
    for name in named_claims(cycle.pod) {
        let claim = cycle.snapshot.storage.claim(&cycle.pod.namespace, name);
        let claim = claim.ok_or_else(|| not_found("persistentvolumeclaim", name))?;
        if claim.wanted.access_modes.iter().any(|mode| mode == "ReadWriteOncePod") {
            names.push(name.clone());
        }
    }
    Ok(names)
}

fn is_disk(volume: &Volume) -> bool {
    !matches!(volume, Volume::Claim { .. } | Volume::Ephemeral { .. })
}

/// The same disk, unless both use it read-only.
fn conflict(one: &Volume, other: &Volume) -> bool {
    use Volume::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
    match (one, other) {
        (GcePersistentDisk { name, read_only }, GcePersistentDisk { name: other, read_only: too }) => {
            name == other && !(*read_only && *too)
        }
        (AwsElasticBlockStore { id, .. }, AwsElasticBlockStore { id: other, .. }) => id == other,
        (Iscsi { iqn, read_only }, Iscsi { iqn: other, read_only: too }) => iqn == other && !(*read_only && *too),
        (Rbd { monitors, pool, image, read_only }, Rbd { monitors: others, pool: p, image: i, read_only: too }) => {
            let shared = monitors.iter().any(|monitor| others.contains(monitor));
            shared && pool == p && image == i && !(*read_only && *too)
        }
        _ => false,
    }
}
