//! Rollback requested by the deprecated annotation of extensions/v1beta1. Newer clients write the template
//! themselves.

use api::Tree;

use super::revision;
use super::state::DeploymentState;
use crate::support::event_message::EventMessage;

pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// The event, and the Deployment to write; the annotation is removed in any case.
#[derive(Debug, PartialEq)]
pub(crate) struct Rollback {
    pub deployment: Tree,
    pub event: EventMessage,
}

/// The requested revision; 0 is the previous one.
pub(super) fn requested_revision(deployment: &Tree) -> Option<i64> {
    deployment.map("metadata.annotations").str(ROLLBACK_TO).parse().ok()
}

pub(super) fn plan(state: &DeploymentState, wished: i64) -> Rollback {
    let mut deployment = state.deployment.clone();
    deployment.child("metadata.annotations").remove(ROLLBACK_TO);
    let name = deployment.str("metadata.name").to_string();
    let revision = if wished == 0 { previous_revision(state) } else { wished };
    if revision == 0 {
        let event = EventMessage::warning("DeploymentRollbackRevisionNotFound", "Unable to find last revision.");
        return Rollback { deployment, event };
    }
    let Some(set) = state.sets.iter().find(|set| revision::of(&set.tree) == revision) else {
        let message = "Unable to find the revision to rollback to.";
        return Rollback { deployment, event: EventMessage::warning("DeploymentRollbackRevisionNotFound", message) };
    };
    let mut template = set.tree.at("spec.template").clone();
    if revision::is_same_template(&template, deployment.at("spec.template")) {
        let message = format!("The rollback revision contains the same template as current deployment {name:?}");
        return Rollback { deployment, event: EventMessage::warning("DeploymentRollbackTemplateUnchanged", message) };
    }
    template.child("metadata.labels").remove(revision::HASH);
    deployment.child("spec").set("template", template);
    take_annotations(&mut deployment, &set.tree);
    let message = format!("Rolled back deployment {name:?} to revision {revision}");
    Rollback { deployment, event: EventMessage::normal("DeploymentRollback", message) }
}

fn previous_revision(state: &DeploymentState) -> i64 {
    let mut revisions: Vec<i64> = state.sets.iter().map(|set| revision::of(&set.tree)).collect();
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
