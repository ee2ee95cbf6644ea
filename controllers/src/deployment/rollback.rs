//! Rollback requested by the deprecated annotation of extensions/v1beta1. Newer clients write the template
//! themselves.

use api::Tree;

use super::revision;
use super::work::Work;
use crate::support::note::Note;

pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// The event, and the Deployment to write; the annotation is removed in any case.
#[derive(Debug, PartialEq)]
pub(crate) struct Rollback {
    pub deployment: Tree,
    pub note: Note,
}

/// The requested revision; 0 is the previous one.
pub(super) fn wished(deployment: &Tree) -> Option<i64> {
    deployment.map("metadata.annotations").str(ROLLBACK_TO).parse().ok()
}

pub(super) fn plan(work: &Work, wished: i64) -> Rollback {
    let mut deployment = work.deployment.clone();
    deployment.child("metadata.annotations").remove(ROLLBACK_TO);
    let name = deployment.str("metadata.name").to_string();
    let revision = if wished == 0 { last_but_one(work) } else { wished };
    if revision == 0 {
        let note = Note::warning("DeploymentRollbackRevisionNotFound", "Unable to find last revision.");
        return Rollback { deployment, note };
    }
    let Some(set) = work.sets.iter().find(|set| revision::of(&set.tree) == revision) else {
        let message = "Unable to find the revision to rollback to.";
        return Rollback { deployment, note: Note::warning("DeploymentRollbackRevisionNotFound", message) };
    };
    let mut template = set.tree.at("spec.template").clone();
    if revision::is_same_template(&template, deployment.at("spec.template")) {
        let message = format!("The rollback revision contains the same template as current deployment {name:?}");
        return Rollback { deployment, note: Note::warning("DeploymentRollbackTemplateUnchanged", message) };
    }
    template.child("metadata.labels").remove(revision::HASH);
    deployment.child("spec").set("template", template);
    take_annotations(&mut deployment, &set.tree);
    let message = format!("Rolled back deployment {name:?} to revision {revision}");
    Rollback { deployment, note: Note::normal("DeploymentRollback", message) }
}

fn last_but_one(work: &Work) -> i64 {
    let mut revisions: Vec<i64> = work.sets.iter().map(|set| revision::of(&set.tree)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or_default()
}

/// Copies the ReplicaSet's annotations except those that belong to the Deployment.
fn take_annotations(deployment: &mut Tree, set: &Tree) {
    let is_own = |key: &str| revision::OWN.contains(&key);
    let annotations = deployment.child("metadata.annotations");
    if let Some(map) = annotations.as_map_mut() {
        map.retain(|key, _| is_own(key));
    }
    for (key, value) in set.map("metadata.annotations").iter().filter(|(key, _)| !is_own(key)) {
        annotations.set(key, value.clone());
    }
}
