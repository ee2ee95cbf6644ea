//! Plans which volumes are attached to a node: the volumes of its pods, as long as the pods need them. Creating a
//! VolumeAttachment requests the attach; deleting it requests the detach, which is safe only once the node has
//! unmounted the volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};

use crate::support::event_message::EventMessage;
use crate::support::volumes::is_deleting;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How long to wait for an unhealthy node to unmount.
const LONGEST_UNMOUNT_SECONDS: i64 = 360;

/// A volume that pods need on a node.
#[derive(Debug, Clone)]
pub(crate) struct DesiredAttachment {
    pub volume: Arc<Tree>,
    pub pods: Vec<Arc<Tree>>,
    /// Other nodes it is attached to, and the pods using it there.
    pub elsewhere: Vec<(String, Vec<Arc<Tree>>)>,
}

pub(super) struct ObservedState<'a> {
    pub node_name: &'a str,
    pub node: Option<&'a Tree>,
    pub desired: &'a [DesiredAttachment],
    /// The node's attachments that belong to this controller.
    pub attachments: &'a [Arc<Tree>],
    pub volumes: &'a dyn Fn(&str) -> Option<Arc<Tree>>,
    /// Since when each attachment is unused.
    pub idle_since: &'a BTreeMap<String, i64>,
    pub now: i64,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub create: Vec<Tree>,
    /// The desired `volumesAttached` of the node, which is written before anything is detached.
    pub attached: Option<Vec<Tree>>,
    pub delete: Vec<String>,
    pub events: Vec<(Arc<Tree>, EventMessage)>,
    pub idle_since: BTreeMap<String, i64>,
    pub again_seconds: Option<i64>,
}

/// Whether a pod still needs its volumes.
pub(crate) fn needs_volumes(pod: &Tree) -> bool {
    !matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

/// The unique name of a CSI volume in the node status; None for other volumes.
pub(super) fn unique_name(volume: &Tree) -> Option<String> {
    let csi = volume.at("spec.csi");
    let (driver, handle) = (csi.str("driver"), csi.str("volumeHandle"));
    (!driver.is_empty()).then(|| format!("kubernetes.io/csi/{driver}^{handle}"))
}

/// A deterministic name: concurrent creates result in one attachment.
pub(crate) fn attachment_name(volume: &Tree, node: &str) -> String {
    let csi = volume.at("spec.csi");
    let text = format!("{}{}{node}", csi.str("volumeHandle"), csi.str("driver"));
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let hex = stdx::hex::encode(digest.as_ref());
    format!("csi-{hex}")
}

pub(super) fn plan(observed: &ObservedState<'_>) -> Plan {
    let mut plan = Plan::default();
    for desired in observed.desired {
        attach(observed, desired, &mut plan);
    }
    for attachment in observed.attachments {
        detach(observed, attachment, &mut plan);
    }
    update_attached(observed, &mut plan);
    plan
}

fn attach(observed: &ObservedState<'_>, desired: &DesiredAttachment, plan: &mut Plan) {
    let name = attachment_name(&desired.volume, observed.node_name);
    let there = observed.attachments.iter().find(|attachment| attachment.str("metadata.name") == name);
    match there {
        Some(attachment) => report_failure(desired, attachment, plan),
        None if is_exclusive(&desired.volume) && !desired.elsewhere.is_empty() => report_multi_attach(desired, plan),
        None => plan.create.push(tree! {
            "apiVersion" => "storage.k8s.io/v1",
            "kind" => "VolumeAttachment",
            "metadata" => tree! { "name" => name },
            "spec" => tree! {
                "attacher" => desired.volume.str("spec.csi.driver"),
                "nodeName" => observed.node_name,
                "source" => tree! { "persistentVolumeName" => desired.volume.str("metadata.name") },
            },
        }),
    }
}

fn report_failure(desired: &DesiredAttachment, attachment: &Tree, plan: &mut Plan) {
    let why = attachment.str("status.attachError.message");
    if why.is_empty() || attachment.bool("status.attached") {
        return;
    }
    let text = format!("AttachVolume.Attach failed for volume {:?} : {why}", desired.volume.str("metadata.name"));
    plan.events.extend(
        desired.pods.iter().map(|pod| (pod.clone(), EventMessage::warning("FailedAttachVolume", text.clone()))),
    );
}

/// Whether only one node at a time may attach it.
fn is_exclusive(volume: &Tree) -> bool {
    let modes = volume.list("spec.accessModes");
    let shares = |mode: &Tree| matches!(mode.as_str(), Some("ReadWriteMany" | "ReadOnlyMany"));
    !modes.is_empty() && !modes.iter().any(shares)
}

/// Pods of other namespaces are not named.
fn report_multi_attach(desired: &DesiredAttachment, plan: &mut Plan) {
    let users: Vec<&Arc<Tree>> = desired.elsewhere.iter().flat_map(|(_, pods)| pods).collect();
    for pod in &desired.pods {
        let namespace = pod.str("metadata.namespace");
        let is_near = |user: &&&Arc<Tree>| user.str("metadata.namespace") == namespace;
        let near: Vec<&str> = users.iter().filter(is_near).map(|user| user.str("metadata.name")).collect();
        let far = users.len() - near.len();
        let why = match (near.as_slice(), far) {
            ([], 0) => {
                "Volume is already exclusively attached to one node and can't be attached to another".to_string()
            }
            ([], far) => format!("Volume is already used by {far} pod(s) in different namespaces"),
            (near, 0) => format!("Volume is already used by pod(s) {}", near.join(", ")),
            (near, far) => {
                let near = near.join(", ");
                format!("Volume is already used by pod(s) {near} and {far} pod(s) in different namespaces")
            }
        };
        let text = format!("Multi-Attach error for volume {:?} {why}", desired.volume.str("metadata.name"));
        plan.events.push((pod.clone(), EventMessage::warning("FailedAttachVolume", text)));
    }
}

fn detach(observed: &ObservedState<'_>, attachment: &Tree, plan: &mut Plan) {
    let name = attachment.str("metadata.name");
    let is_wanted = observed.desired.iter().any(|desired| attachment_name(&desired.volume, observed.node_name) == name);
    if is_wanted || is_deleting(attachment) {
        return;
    }
    let since = observed.idle_since.get(name).copied().unwrap_or(observed.now);
    let left = since + LONGEST_UNMOUNT_SECONDS - observed.now;
    let is_forced =
        observed.node.is_some_and(is_out_of_service) || (left <= 0 && !observed.node.is_some_and(is_healthy));
    if is_forced || !is_in_use(observed, attachment) {
        plan.delete.push(name.to_string());
        return;
    }
    plan.idle_since.insert(name.to_string(), since);
    // A healthy node may need any time; its status shows when the volume is unmounted.
    if left > 0 {
        plan.again_seconds = Some(plan.again_seconds.map_or(left, |other| other.min(left)));
    }
}

/// The volumes in use on a missing node are unknown.
fn is_in_use(observed: &ObservedState<'_>, attachment: &Tree) -> bool {
    let volume = (observed.volumes)(attachment.str("spec.source.persistentVolumeName"));
    match (observed.node, volume.as_deref().and_then(unique_name)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(node), Some(name)) => node.list("status.volumesInUse").iter().any(|used| used.as_str() == Some(&*name)),
    }
}

fn is_out_of_service(node: &Tree) -> bool {
    node.list("spec.taints").iter().any(|taint| taint.str("key") == OUT_OF_SERVICE)
}

pub(super) fn is_healthy(node: &Tree) -> bool {
    let conditions = node.list("status.conditions").iter();
    conditions.filter(|condition| condition.str("type") == "Ready").any(|ready| ready.str("status") == "True")
}

/// Updates `volumesAttached` of the node, and adds events to its pods.
fn update_attached(observed: &ObservedState<'_>, plan: &mut Plan) {
    let Some(node) = observed.node else { return };
    let mut attached: BTreeMap<String, String> = BTreeMap::new();
    for attachment in observed.attachments {
        let name = attachment.str("metadata.name");
        let stays = !is_deleting(attachment) && !plan.delete.iter().any(|deleted| deleted == name);
        let volume = (observed.volumes)(attachment.str("spec.source.persistentVolumeName"));
        if let Some(unique) = volume.as_deref().and_then(unique_name)
            && stays
            && attachment.bool("status.attached")
        {
            attached.insert(unique, attachment.map("status.attachmentMetadata").str("devicePath").to_string());
        }
    }
    let there = node.list("status.volumesAttached");
    let is_told = |name: &str| there.iter().any(|volume| volume.str("name") == name);
    for desired in observed.desired {
        if unique_name(&desired.volume).is_some_and(|name| attached.contains_key(&name) && !is_told(&name)) {
            let volume = desired.volume.str("metadata.name");
            let event = EventMessage::normal(
                "SuccessfulAttachVolume",
                format!("AttachVolume.Attach succeeded for volume {volume:?} "),
            );
            plan.events.extend(desired.pods.iter().map(|pod| (pod.clone(), event.clone())));
        }
    }
    let list: Vec<Tree> = attached.iter().map(|(name, path)| tree! { "name" => name, "devicePath" => path }).collect();
    let names = |list: &[Tree]| list.iter().map(|volume| volume.str("name").to_string()).collect::<Vec<_>>();
    let mut reported = names(there);
    reported.sort();
    if reported != names(&list) {
        plan.attached = Some(list);
    }
}

#[cfg(test)]
mod tests;
