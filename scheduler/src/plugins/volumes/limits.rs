//! Limits of attached volumes per driver and node.

use std::collections::BTreeSet;

use api::Str;

use super::{claim_names, is_own_claim};
use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::{Kind, NodeState, Storage};
use podmodel::storage::{Claim, Disk};
use podmodel::{Pod, Volume};

pub(crate) struct NodeVolumeLimits;

/// The volumes of the pod.
#[derive(Clone)]
struct RequiredDisks(BTreeSet<Disk>);

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if cycle.pod.spec.volumes.is_empty() {
            return PreFilter::Skip;
        }
        let wanted = disks_of(&cycle.snapshot.storage, cycle.pod);
        if wanted.is_empty() { PreFilter::Skip } else { PreFilter::Check(Slot::new(RequiredDisks(wanted))) }
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(RequiredDisks(wanted)) = slot.get::<RequiredDisks>() else { return Ok(()) };
        let storage = &cycle.snapshot.storage;
        if let Some(driver) = missing_driver(storage, wanted, node.name()) {
            return Err(Rejection::unschedulable(format!("{driver} CSI driver is not installed on the node")));
        }
        let Some(limits) = storage.csi_node(node.name()).filter(|limits| !limits.limits.is_empty()) else {
            return Ok(());
        };
        let mut attached: BTreeSet<Disk> = storage.attached_to(node.name()).cloned().collect();
        attached.extend(node.pods.iter().flat_map(|pod| disks_of(storage, pod)));
        let added: BTreeSet<Disk> = wanted.difference(&attached).cloned().collect();
        let of = |driver: &Str, disks: &BTreeSet<Disk>| {
            let counts = |disk: &&Disk| disk.driver == *driver && limits.counts(disk);
            i64::try_from(disks.iter().filter(counts).count()).unwrap_or(i64::MAX)
        };
        let is_over = |(driver, most): &(Str, i64)| {
            let more = of(driver, &added);
            more > 0 && of(driver, &attached) + more > *most
        };
        match limits.limits.iter().any(is_over) {
            true => Err(Rejection::unschedulable("node(s) exceed max volume count")),
            false => Ok(()),
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodDeleted(gone) => !gone.spec.volumes.is_empty(),
            Event::Object { kind: Kind::CsiNode | Kind::CsiDriver, new, .. } => new.is_some(),
            Event::Object { kind: Kind::VolumeAttachment, new, .. } => new.is_none(),
            Event::Object { kind: Kind::PersistentVolumeClaim, new, .. } => is_own_claim(pod, *new),
            _ => false,
        }
    }
}

/// A driver of the pod's volumes that is required on the node but not installed.
fn missing_driver<'a>(storage: &Storage, wanted: &'a BTreeSet<Disk>, node: &str) -> Option<&'a Str> {
    let is_there = |driver: &Str| storage.csi_node(node).is_some_and(|node| node.drivers.contains(driver));
    let mut drivers = wanted.iter().map(|disk| &disk.driver);
    drivers.find(|driver| storage.is_required_on_nodes(driver) && !is_there(driver))
}

fn disks_of(storage: &Storage, pod: &Pod) -> BTreeSet<Disk> {
    let claims = claim_names(pod).filter_map(|name| storage.claim(&pod.namespace, &name));
    let own = pod.spec.volumes.iter().filter_map(own_disk);
    claims.filter_map(|claim| disk(storage, claim)).chain(own).collect()
}

/// An inline disk of a pod.
fn own_disk(volume: &Volume) -> Option<Disk> {
    match volume {
        Volume::GcePersistentDisk { name, .. } => Some(Disk::from_in_tree_plugin("gcePersistentDisk", name)),
        Volume::AwsElasticBlockStore { id, .. } => Some(Disk::from_in_tree_plugin("awsElasticBlockStore", id)),
        _ => None,
    }
    .flatten()
}

/// A volume to be provisioned is identified by its claim.
fn disk(storage: &Storage, claim: &Claim) -> Option<Disk> {
    match storage.volume(&claim.volume_name) {
        Some(volume) => volume.disk.clone(),
        None => Some(Disk::for_provisioning(&storage.class(&claim.wanted.class)?.provisioner, &claim.key)),
    }
}

#[cfg(test)]
mod tests {
    use api::{Tree, list, tree};

    use super::*;
    use crate::testing::{FixedObjects, ObjectBuilder, TestCluster, node, pod};

    /// A pod with an inline disk of an in-tree plugin.
    fn user_of(disk: &str) -> ObjectBuilder {
        pod(disk).with("spec.volumes", list![tree! { "awsElasticBlockStore" => tree! { "volumeID" => disk } }])
    }

    fn csi_node(name: &str, migrated: &str) -> Tree {
        let mut annotations = tree! {};
        annotations.set("storage.alpha.kubernetes.io/migrated-plugins", migrated);
        let driver = tree! { "name" => "ebs.csi.aws.com", "allocatable" => tree! { "count" => 1 } };
        tree! {
            "metadata" => tree! { "name" => name, "annotations" => annotations },
            "spec" => tree! { "drivers" => list![driver] },
        }
    }

    #[test]
    fn drivers_can_require_installation() {
        let driver = |wants: bool| {
            tree! {
                "metadata" => tree! { "name" => "ebs.csi.aws.com" },
                "spec" => tree! { "preventPodSchedulingIfMissing" => wants },
            }
        };
        for (wants, name, fits) in
            [(true, "has", true), (true, "bare", false), (true, "silent", false), (false, "bare", true)]
        {
            let mut objects = FixedObjects::default();
            objects.put(Kind::CsiDriver, driver(wants));
            objects.put(Kind::CsiNode, csi_node("has", "kubernetes.io/aws-ebs"));
            objects.put(Kind::CsiNode, tree! { "metadata" => tree! { "name" => "bare" } });
            let mut world = TestCluster::with(objects);
            world.node(node(name));
            let verdict = world.filter(&NodeVolumeLimits, user_of("one"), name);
            let want = if fits { Ok(()) } else { Err("ebs.csi.aws.com CSI driver is not installed on the node") };
            assert_eq!(verdict.map_err(|why| why.reasons[0].to_string()), want.map_err(String::from), "{wants} {name}");
        }
    }

    #[test]
    fn migrated_disks_count_for_their_driver() {
        let mut objects = FixedObjects::default();
        objects.put(Kind::CsiNode, csi_node("moved", "kubernetes.io/aws-ebs"));
        objects.put(Kind::CsiNode, csi_node("old", ""));
        let mut world = TestCluster::with(objects);
        for name in ["moved", "old", "silent"] {
            world.node(node(name));
            let there = user_of("one").with("metadata.uid", format!("{name}-0")).on(name);
            world.placed(there);
        }
        for (name, disk, fits) in
            [("moved", "two", false), ("moved", "one", true), ("old", "two", true), ("silent", "two", true)]
        {
            let verdict = world.filter(&NodeVolumeLimits, user_of(disk), name);
            assert_eq!(verdict.is_ok(), fits, "{disk} on {name}: {verdict:?}");
        }
    }
}
