//! A driver says how many of its volumes a node can have attached.

use std::collections::{BTreeMap, BTreeSet};

use api::{Str, Tree};

use super::{claim, claim_names, class_name, is_own_claim};
use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Refusal, Slot, Verdict};
use crate::model::Pod;
use crate::snapshot::{Kind, NodeState, Objects};

pub struct NodeVolumeLimits;

/// The driver of a volume and its handle.
type Disk = (Str, Str);

#[derive(Clone)]
struct Disks {
    wanted: BTreeSet<Disk>,
    /// What is attached to nodes, whoever uses it.
    attached: BTreeMap<Str, BTreeSet<Disk>>,
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if claim_names(cycle.pod).next().is_none() {
            return PreFilter::Skip;
        }
        let objects = &*cycle.snapshot.objects;
        let wanted = disks_of(objects, cycle.pod);
        match wanted.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Check(Slot::new(Disks { wanted, attached: attachments(objects) })),
        }
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(disks) = slot.get::<Disks>() else { return Ok(()) };
        let objects = &*cycle.snapshot.objects;
        let limits = limits(objects, node.name());
        if limits.is_empty() {
            return Ok(());
        }
        let mut attached = disks.attached.get(node.name()).cloned().unwrap_or_default();
        attached.extend(node.pods.iter().flat_map(|pod| disks_of(objects, pod)));
        let of = |driver: &Str, disks: &BTreeSet<Disk>| disks.iter().filter(|(name, _)| name == driver).count() as i64;
        let added: BTreeSet<Disk> = disks.wanted.difference(&attached).cloned().collect();
        let is_over = |(driver, most): &(Str, i64)| {
            let more = of(driver, &added);
            more > 0 && of(driver, &attached) + more > *most
        };
        match limits.iter().any(is_over) {
            true => Err(Refusal::unschedulable("node(s) exceed max volume count")),
            false => Ok(()),
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodGone(gone) => claim_names(gone).next().is_some(),
            Event::Object { kind: Kind::CsiNode, new, .. } => new.is_some(),
            Event::Object { kind: Kind::VolumeAttachment, new, .. } => new.is_none(),
            Event::Object { kind: Kind::PersistentVolumeClaim, new, .. } => is_own_claim(pod, *new),
            _ => false,
        }
    }
}

fn limits(objects: &dyn Objects, node: &str) -> Vec<(Str, i64)> {
    let Some(node) = objects.get(Kind::CsiNode, node) else { return Vec::new() };
    let limit = |driver: &Tree| Some((Str::new(driver.str("name")), driver.int("allocatable.count")?));
    node.list("spec.drivers").iter().filter_map(limit).collect()
}

fn disks_of(objects: &dyn Objects, pod: &Pod) -> BTreeSet<Disk> {
    let claims = claim_names(pod).filter_map(|name| claim(objects, &pod.namespace, &name));
    claims.filter_map(|claim| disk(objects, &claim)).collect()
}

/// A volume that is yet to be made counts by its claim.
fn disk(objects: &dyn Objects, claim: &Tree) -> Option<Disk> {
    let name = claim.str("spec.volumeName");
    let volume = (!name.is_empty()).then(|| objects.get(Kind::PersistentVolume, name)).flatten();
    if let Some(volume) = volume {
        return csi(&volume);
    }
    let class = objects.get(Kind::StorageClass, class_name(claim))?;
    let of_claim = format!("{}/{}", claim.str("metadata.namespace"), claim.str("metadata.name"));
    Some((Str::new(class.str("provisioner")), Str::from(of_claim)))
}

fn csi(volume: &Tree) -> Option<Disk> {
    let source = volume.at("spec.csi");
    (!source.is_null()).then(|| (Str::new(source.str("driver")), Str::new(source.str("volumeHandle"))))
}

fn attachments(objects: &dyn Objects) -> BTreeMap<Str, BTreeSet<Disk>> {
    let mut attached: BTreeMap<Str, BTreeSet<Disk>> = BTreeMap::new();
    for attachment in objects.all(Kind::VolumeAttachment) {
        let volume = objects.get(Kind::PersistentVolume, attachment.str("spec.source.persistentVolumeName"));
        if let Some(disk) = volume.and_then(|volume| csi(&volume)) {
            attached.entry(Str::new(attachment.str("spec.nodeName"))).or_default().insert(disk);
        }
    }
    attached
}
