//! Revisions: which ReplicaSet has the Deployment's template, its name, and its revision number.

use api::{Tree, tree};

use super::state::{DeploymentState, ReplicaSet, ReplicaSetChange};
use crate::support::{hash, owner, same};

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const HASH: &str = "pod-template-hash";
const HISTORY_LENGTH: usize = 2000;

/// Annotations that are not copied between a Deployment and its ReplicaSets.
pub(super) const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    super::state::DESIRED,
    super::state::MAX,
    super::rollback::ROLLBACK_TO,
];

/// Whether two templates are equal except for the hash label.
pub(crate) fn is_same_template(a: &Tree, b: &Tree) -> bool {
    let plain = |template: &Tree| {
        let mut template = template.clone();
        template.child("metadata.labels").remove(HASH);
        template
    };
    same::is_same(&plain(a), &plain(b))
}

pub(super) fn of(object: &Tree) -> i64 {
    object.map("metadata.annotations").str(REVISION).parse().unwrap_or_default()
}

/// The revision of a ReplicaSet with a new template, or with an old one that is used again.
fn next(state: &DeploymentState) -> i64 {
    state.old().iter().map(|at| of(&state.sets[*at].tree)).max().unwrap_or_default() + 1
}

/// Updates annotations and minReadySeconds of the new ReplicaSet. Returns whether there is one.
pub(super) fn sync(state: &mut DeploymentState) -> bool {
    let Some(at) = state.new else { return false };
    let revision = next(state);
    let deployment = &state.deployment;
    let set = &mut state.sets[at];
    annotate(deployment, set, revision);
    let min_ready = deployment.at("spec.minReadySeconds").as_int().unwrap_or_default();
    if set.tree.int("spec.minReadySeconds").unwrap_or_default() != min_ready {
        set.tree.child("spec").set("minReadySeconds", min_ready);
        set.touch();
    }
    let revision = set.annotation(REVISION).to_string();
    set_deployment(&mut state.deployment, &revision);
    true
}

/// Adds the ReplicaSet of a new template. The caller sets its size.
pub(super) fn create(state: &mut DeploymentState) {
    let deployment = &state.deployment;
    let hash = hash::template_hash(deployment.at("spec.template"), deployment.int("status.collisionCount"));
    let mut template = deployment.at("spec.template").clone();
    template.child("metadata.labels").set(HASH, hash.as_str());
    let mut selector = deployment.at("spec.selector").clone();
    selector.child("matchLabels").set(HASH, hash.as_str());
    let reference = owner::controller_reference(deployment);
    let metadata = tree! {
        "name" => format!("{}-{hash}", deployment.str("metadata.name")),
        "namespace" => deployment.str("metadata.namespace"),
        "labels" => template.at("metadata.labels").clone(),
        "annotations" => tree! {},
        "ownerReferences" => vec![reference],
    };
    let mut spec = tree! { "replicas" => 0, "selector" => selector, "template" => template };
    if let Some(seconds) = deployment.int("spec.minReadySeconds").filter(|seconds| *seconds > 0) {
        spec.set("minReadySeconds", seconds);
    }
    let tree = tree! { "apiVersion" => "apps/v1", "kind" => "ReplicaSet", "metadata" => metadata, "spec" => spec };
    let revision = next(state);
    state.add_new(tree);
    if let Some(set) = state.sets.last_mut() {
        annotate(&state.deployment, set, revision);
    }
    set_deployment(&mut state.deployment, &revision.to_string());
}

fn annotate(deployment: &Tree, set: &mut ReplicaSet, revision: i64) {
    for (key, value) in deployment.map("metadata.annotations").iter().filter(|(key, _)| !OWN.contains(key)) {
        set.annotate(key, value.as_str().unwrap_or(""));
    }
    let text = set.annotation(REVISION).to_string();
    // An invalid revision number stays unchanged.
    let Ok(old) = (if text.is_empty() { Ok(0) } else { text.parse::<i64>() }) else { return };
    if old >= revision {
        return;
    }
    if !text.is_empty() && set.change != ReplicaSetChange::Create {
        add_to_history(set, &text);
    }
    set.annotate(REVISION, &revision.to_string());
}

/// Adds to the revision history of the ReplicaSet, dropping the oldest revisions if it is too long.
fn add_to_history(set: &mut ReplicaSet, revision: &str) {
    let known = set.annotation(HISTORY).to_string();
    let mut numbers: Vec<&str> = known.split(',').filter(|number| !number.is_empty()).collect();
    numbers.push(revision);
    let too_long = |numbers: &[&str]| numbers.iter().map(|number| number.len() + 1).sum::<usize>() > HISTORY_LENGTH + 1;
    while too_long(&numbers) {
        numbers.remove(0);
    }
    set.annotate(HISTORY, &numbers.join(","));
}

fn set_deployment(deployment: &mut Tree, revision: &str) {
    if deployment.map("metadata.annotations").str(REVISION) != revision {
        deployment.child("metadata.annotations").set(REVISION, revision);
    }
}

/// Deletes old ReplicaSets beyond `revisionHistoryLimit`, oldest revision first, once they have no pods.
pub(super) fn clean_up(state: &mut DeploymentState) {
    let Some(limit) = state.deployment.int("spec.revisionHistoryLimit").filter(|limit| *limit != i64::from(i32::MAX))
    else {
        return;
    };
    let mut old = state.old();
    old.retain(|at| !state.sets[*at].tree.at("metadata").has("deletionTimestamp"));
    old.sort_by_key(|at| of(&state.sets[*at].tree));
    let too_many = old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    for at in old.into_iter().take(too_many) {
        let set = &mut state.sets[at];
        let seen = set.tree.int("status.observedGeneration").unwrap_or_default();
        let is_empty = set.tree.int("status.replicas").unwrap_or_default() == 0 && set.replicas() == 0;
        if is_empty && set.tree.int("metadata.generation").unwrap_or_default() <= seen {
            set.change = ReplicaSetChange::Delete;
        }
    }
}
