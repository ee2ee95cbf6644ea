//! Builds the pods of a StatefulSet: each has an ordinal, a stable name, and its own claims.

use api::{Tree, tree};

use crate::support::pods;

pub(crate) const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The set name and ordinal of a pod name.
pub(crate) fn parent_and_ordinal(name: &str) -> Option<(&str, i64)> {
    let (parent, ordinal) = name.rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    let ordinal: i32 = is_number.then(|| ordinal.parse().ok()).flatten()?;
    Some((parent, i64::from(ordinal)))
}

pub(crate) fn ordinal(pod: &Tree) -> Option<i64> {
    parent_and_ordinal(pod.str("metadata.name")).map(|(_, ordinal)| ordinal)
}

pub(crate) fn is_member(set: &Tree, pod: &Tree) -> bool {
    parent_and_ordinal(pod.str("metadata.name")).is_some_and(|(parent, _)| parent == set.str("metadata.name"))
}

pub(super) fn revision(pod: &Tree) -> &str {
    pod.map("metadata.labels").str(REVISION)
}

pub(super) fn start(set: &Tree) -> i64 {
    set.int("spec.ordinals.start").unwrap_or_default()
}

pub(crate) fn is_in_range(set: &Tree, ordinal: i64) -> bool {
    let replicas = set.int("spec.replicas").unwrap_or_default();
    (start(set)..start(set) + replicas).contains(&ordinal)
}

/// The pod of an ordinal, with a template and its revision name.
pub(super) fn build(set: &Tree, template: &Tree, revision: &str, ordinal: i64) -> Tree {
    let mut pod = pods::from_template(template, set);
    let name = format!("{}-{ordinal}", set.str("metadata.name"));
    pod.child("metadata").set("name", name.as_str());
    pod.child("metadata.labels").set(REVISION, revision);
    identify(&mut pod, &name, ordinal);
    let spec = pod.child("spec");
    spec.set("hostname", name);
    spec.set("subdomain", set.str("spec.serviceName"));
    mount(set, &mut pod, ordinal);
    pod
}

fn identify(pod: &mut Tree, name: &str, ordinal: i64) {
    let labels = pod.child("metadata.labels");
    labels.set(POD_NAME, name);
    labels.set(POD_INDEX, ordinal.to_string());
}

/// Volumes named like claim templates refer to those claims.
fn mount(set: &Tree, pod: &mut Tree, ordinal: i64) {
    let names: Vec<&str> =
        set.list("spec.volumeClaimTemplates").iter().map(|claim| claim.str("metadata.name")).collect();
    let volume = |name: &&str| {
        let claim = tree! { "claimName" => claim_name(set, name, ordinal) };
        tree! { "name" => *name, "persistentVolumeClaim" => claim }
    };
    let mut volumes: Vec<Tree> = names.iter().map(volume).collect();
    let others = pod.list("spec.volumes").iter().filter(|volume| !names.contains(&volume.str("name")));
    volumes.extend(others.cloned());
    if !volumes.is_empty() {
        pod.child("spec").set("volumes", volumes);
    }
}

/// The pod with correct labels and volumes; None if they are correct.
pub(crate) fn corrected(set: &Tree, pod: &Tree) -> Option<Tree> {
    let ordinal = ordinal(pod)?;
    let name = pod.str("metadata.name").to_string();
    let mut correct = pod.clone();
    identify(&mut correct, &name, ordinal);
    if !has_claims(set, pod, ordinal) {
        mount(set, &mut correct, ordinal);
    }
    correct.set("apiVersion", "v1");
    correct.set("kind", "Pod");
    let same = |field: &str| correct.at(field) == pod.at(field);
    (!same("metadata") || !same("spec")).then_some(correct)
}

fn has_claims(set: &Tree, pod: &Tree, ordinal: i64) -> bool {
    set.list("spec.volumeClaimTemplates").iter().all(|template| {
        let name = template.str("metadata.name");
        let claim = claim_name(set, name, ordinal);
        let mut volumes = pod.list("spec.volumes").iter();
        volumes.any(|volume| volume.str("name") == name && volume.str("persistentVolumeClaim.claimName") == claim)
    })
}

pub(super) fn claim_name(set: &Tree, template: &str, ordinal: i64) -> String {
    format!("{template}-{}-{ordinal}", set.str("metadata.name"))
}

pub(super) fn is_created(pod: &Tree) -> bool {
    !pod.str("status.phase").is_empty()
}

pub(crate) fn is_running_and_ready(pod: &Tree) -> bool {
    pod.str("status.phase") == "Running" && pods::is_ready(pod)
}
