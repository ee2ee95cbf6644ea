//! What pods need of their claims, and who may still use a claim.

use std::sync::Arc;

use api::{Tree, list, tree};
use thiserror::Error;

use crate::support::owner;
use crate::support::resource_claims::{ClaimName, claim_name, is_allocated, is_reserved_for};

/// The name of a claim within its pod, of generated claims.
pub(super) const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Leaves a hyphen and five random characters in a name of 63.
const MAX_BASE: usize = 57;

/// The claims that the controller knows.
pub(super) trait Claims {
    fn claim(&self, name: &str) -> Option<Arc<Tree>>;
    fn template(&self, name: &str) -> Option<Arc<Tree>>;
    /// Claims with the pod as their controlling owner.
    fn owned(&self) -> Vec<Arc<Tree>>;
}

/// Why a claim is not created.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum ClaimError {
    #[error(
        "PodResourceClaim {claim}: resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
    )]
    NoTemplate { claim: String, template: String },
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct PodPlan {
    /// Claims to create, by their name in the pod.
    pub(super) create: Vec<(String, Tree)>,
    /// Claims that exist and that the pod's status does not show: name in the pod and name of the claim.
    pub(super) found: Vec<(String, String)>,
    /// Claims to reserve for a pod that was put on its node by another component than the scheduler.
    pub(super) reserve: Vec<Arc<Tree>>,
    pub(super) error: Option<ClaimError>,
}

pub(super) fn plan_pod(pod: &Tree, claims: &impl Claims) -> PodPlan {
    let mut plan = PodPlan::default();
    if !may_run(pod) || pod.at("metadata").has("deletionTimestamp") {
        return plan;
    }
    for pod_claim in pod.list("spec.resourceClaims") {
        if let Err(error) = plan_claim(pod, pod_claim, claims, &mut plan) {
            plan.error = Some(error);
            return plan;
        }
    }
    plan
}

fn plan_claim(pod: &Tree, pod_claim: &Tree, claims: &impl Claims, plan: &mut PodPlan) -> Result<(), ClaimError> {
    let name = pod_claim.str("name");
    let known = match claim_name(pod, pod_claim) {
        ClaimName::NotNeeded => return Ok(()),
        ClaimName::Known { name, is_generated } => {
            let is_own = |claim: &Arc<Tree>| !is_generated || owner::is_controlled_by(claim, pod);
            claims.claim(name).filter(is_own)
        }
        ClaimName::NotCreated => None,
    };
    if let Some(claim) = known {
        let has_node = !pod.str("spec.nodeName").is_empty();
        if has_node && is_allocated(&claim) && !is_reserved_for(&claim, pod) {
            plan.reserve.push(claim);
        }
        return Ok(());
    }
    let Some(template) = pod_claim.at("resourceClaimTemplateName").as_str() else { return Ok(()) };
    // It may have been created before its name was written into the pod.
    let is_for_it = |claim: &&Arc<Tree>| claim.map("metadata.annotations").str(POD_CLAIM_NAME) == name;
    if let Some(claim) = claims.owned().iter().find(is_for_it) {
        plan.found.push((name.to_string(), claim.str("metadata.name").to_string()));
        return Ok(());
    }
    let Some(found) = claims.template(template) else {
        return Err(ClaimError::NoTemplate { claim: name.to_string(), template: template.to_string() });
    };
    plan.create.push((name.to_string(), from_template(pod, name, &found)));
    Ok(())
}

fn from_template(pod: &Tree, name: &str, template: &Tree) -> Tree {
    let own = template.at("spec.metadata");
    let mut annotations = Tree::Map(own.map("annotations").clone());
    annotations.set(POD_CLAIM_NAME, name);
    let mut metadata = tree! {
        "generateName" => name_prefix(pod.str("metadata.name"), name),
        "namespace" => pod.str("metadata.namespace"),
        "ownerReferences" => list![owner_reference(pod)],
        "annotations" => annotations,
    };
    if own.has("labels") {
        metadata.set("labels", own.at("labels").clone());
    }
    tree! {
        "apiVersion" => "resource.k8s.io/v1",
        "kind" => "ResourceClaim",
        "metadata" => metadata,
        "spec" => template.at("spec.spec").clone(),
    }
}

/// Claims do not block the deletion of their pods.
fn owner_reference(pod: &Tree) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "name" => pod.str("metadata.name"),
        "uid" => pod.str("metadata.uid"),
        "controller" => true,
    }
}

/// Both names are shortened in proportion to their lengths. Names are ASCII.
fn name_prefix(pod: &str, claim: &str) -> String {
    let prefix = format!("{pod}-{claim}-");
    if prefix.len() <= MAX_BASE {
        return prefix;
    }
    let part = |text: &str| text.chars().take(text.len() * MAX_BASE / prefix.len()).collect::<String>();
    format!("{}-{}", part(pod), part(claim))
}

/// The status of a pod with all claims that were created for it.
pub(super) fn status_patch(pod: &Tree, new: &[(String, String)]) -> Tree {
    let mut names = std::collections::BTreeMap::new();
    for status in pod.list("status.resourceClaimStatuses") {
        if let Some(claim) = status.at("resourceClaimName").as_str() {
            names.insert(status.str("name").to_string(), claim.to_string());
        }
    }
    names.extend(new.iter().cloned());
    let statuses = names.into_iter().map(|(name, claim)| tree! { "name" => name, "resourceClaimName" => claim });
    tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "metadata" => tree! {
            "name" => pod.str("metadata.name"),
            "namespace" => pod.str("metadata.namespace"),
            "uid" => pod.str("metadata.uid"),
        },
        "status" => tree! { "resourceClaimStatuses" => statuses.collect::<Vec<_>>() },
    }
}

/// Whether a pod may still run: otherwise it needs no claims.
pub(super) fn may_run(pod: &Tree) -> bool {
    let is_over = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    let is_deleted = pod.at("metadata").has("deletionTimestamp") && pod.str("spec.nodeName").is_empty();
    !is_over && !is_deleted
}

/// What to do with a claim.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimPlan {
    /// The consumers that stay, if some do not.
    pub(super) reserved_for: Option<Vec<Tree>>,
    pub(super) deallocate: bool,
    pub(super) remove_finalizer: bool,
    /// It was created for a pod that will not run.
    pub(super) delete: bool,
}

/// `find` returns the pod of a name, as the API server has it.
pub(super) fn plan_unused(claim: &Tree, find: impl Fn(&str) -> Option<Arc<Tree>>) -> ClaimPlan {
    let is_pod = |consumer: &Tree| consumer.str("apiGroup").is_empty() && consumer.str("resource") == "pods";
    let uses = |consumer: &&Tree| {
        !is_pod(consumer)
            || find(consumer.str("name"))
                .is_some_and(|pod| pod.str("metadata.uid") == consumer.str("uid") && may_run(&pod))
    };
    let consumers = claim.list("status.reservedFor");
    let remaining: Vec<Tree> = consumers.iter().filter(uses).cloned().collect();
    let has_finalizer = claim.list("metadata.finalizers").iter().any(|one| one.as_str() == Some(FINALIZER));
    let mut plan = ClaimPlan::default();
    let is_unused = remaining.is_empty();
    if remaining.len() < consumers.len() {
        plan.reserved_for = Some(remaining);
        plan.deallocate = is_unused && has_finalizer && is_allocated(claim);
        plan.remove_finalizer = has_finalizer && (plan.deallocate || !is_allocated(claim));
    } else if has_finalizer && is_unused && claim.at("metadata").has("deletionTimestamp") {
        plan.deallocate = is_allocated(claim);
        plan.remove_finalizer = true;
    }
    let owner = owner::controller_of(claim).filter(|owner| owner.str("kind") == "Pod");
    if let Some((pod, owner)) = owner.and_then(|owner| Some((find(owner.str("name"))?, owner))).filter(|_| is_unused) {
        plan.delete = pod.str("metadata.uid") != owner.str("uid") || !may_run(&pod);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct FakeClaims {
        claims: Vec<Tree>,
        templates: Vec<Tree>,
    }

    fn named(all: &[Tree], name: &str) -> Option<Arc<Tree>> {
        all.iter().find(|one| one.str("metadata.name") == name).cloned().map(Arc::new)
    }

    impl Claims for FakeClaims {
        fn claim(&self, name: &str) -> Option<Arc<Tree>> {
            named(&self.claims, name)
        }

        fn template(&self, name: &str) -> Option<Arc<Tree>> {
            named(&self.templates, name)
        }

        fn owned(&self) -> Vec<Arc<Tree>> {
            self.claims
                .iter()
                .filter(|claim| !claim.list("metadata.ownerReferences").is_empty())
                .cloned()
                .map(Arc::new)
                .collect()
        }
    }

    fn pod() -> Tree {
        let claims = list![
            tree! { "name" => "t", "resourceClaimTemplateName" => "template" },
            tree! { "name" => "c", "resourceClaimName" => "claim" },
        ];
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "p", "uid" => "u" },
            "spec" => tree! { "resourceClaims" => claims },
        }
    }

    fn template() -> Tree {
        let metadata = tree! { "labels" => tree! { "a" => "1" } };
        let spec = tree! { "metadata" => metadata, "spec" => tree! { "devices" => tree! {} } };
        tree! { "metadata" => tree! { "name" => "template" }, "spec" => spec }
    }

    #[test]
    fn claims_are_created_from_templates_once() {
        let mut known = FakeClaims { templates: vec![template()], ..FakeClaims::default() };
        let plan = plan_pod(&pod(), &known);
        let [(name, claim)] = plan.create.as_slice() else { panic!("{plan:?}") };
        assert_eq!((name.as_str(), claim.str("metadata.generateName")), ("t", "p-t-"));
        assert_eq!(claim.map("metadata.labels").str("a"), "1");
        let mut claim = claim.clone();
        claim.child("metadata").set("name", "p-t-x");
        known.claims.push(claim);
        let plan = plan_pod(&pod(), &known);
        assert_eq!((plan.create.len(), plan.found.clone()), (0, vec![("t".to_string(), "p-t-x".to_string())]));
        let mut shown = pod();
        shown.set("status", status_patch(&pod(), &plan.found).at("status").clone());
        assert_eq!(plan_pod(&shown, &known), PodPlan::default());
        known.claims.clear();
        assert_eq!(plan_pod(&shown, &known).create.len(), 1, "a claim that was deleted is created again");
    }

    #[test]
    fn a_missing_template_is_an_error() {
        let error = plan_pod(&pod(), &FakeClaims::default()).error.map(|error| error.to_string());
        let want = "PodResourceClaim t: resource claim template \"template\": resourceclaimtemplate.resource.k8s.io \
                    \"template\" not found";
        assert_eq!(error.as_deref(), Some(want));
        let mut over = pod();
        over.set("status", tree! { "phase" => "Succeeded" });
        assert_eq!(plan_pod(&over, &FakeClaims::default()), PodPlan::default());
    }

    #[test]
    fn allocated_claims_are_reserved_for_pods_with_nodes() {
        let claim = tree! {
            "metadata" => tree! { "name" => "claim" },
            "status" => tree! { "allocation" => tree! {} },
        };
        let known = FakeClaims { claims: vec![claim], templates: vec![template()] };
        let mut pod = pod();
        assert!(plan_pod(&pod, &known).reserve.is_empty());
        pod.child("spec").set("nodeName", "a");
        assert_eq!(plan_pod(&pod, &known).reserve.len(), 1);
    }

    #[test]
    fn long_names_are_shortened_in_proportion() {
        assert_eq!(name_prefix("p", "c"), "p-c-");
        let short = name_prefix(&"p".repeat(60), &"c".repeat(30));
        assert!(short.starts_with("ppp") && short.ends_with("ccc") && short.len() < 58, "{short}");
    }

    fn used(uids: &[&str], more: &[(&str, Tree)]) -> Tree {
        let consumer = |uid: &&str| tree! { "resource" => "pods", "name" => *uid, "uid" => *uid };
        let status = tree! {
            "allocation" => tree! {},
            "reservedFor" => uids.iter().map(consumer).collect::<Vec<_>>(),
        };
        let mut metadata = tree! { "name" => "claim", "finalizers" => list![FINALIZER] };
        more.iter().for_each(|(field, value)| metadata.set(field, value.clone()));
        tree! { "metadata" => metadata, "status" => status }
    }

    fn find(name: &str) -> Option<Arc<Tree>> {
        let phase = if name == "over" { "Succeeded" } else { "Running" };
        let pod =
            tree! { "metadata" => tree! { "name" => name, "uid" => name }, "status" => tree! { "phase" => phase } };
        (name != "gone").then(|| Arc::new(pod))
    }

    #[test]
    fn claims_are_deallocated_when_their_last_pod_is_over() {
        let check = |claim: &Tree, want: (Option<usize>, bool, bool, bool)| {
            let plan = plan_unused(claim, find);
            let remaining = plan.reserved_for.as_ref().map(Vec::len);
            assert_eq!((remaining, plan.deallocate, plan.remove_finalizer, plan.delete), want, "{claim:?}");
        };
        check(&used(&["a"], &[]), (None, false, false, false));
        check(&used(&["a", "gone"], &[]), (Some(1), false, false, false));
        check(&used(&["over", "gone"], &[]), (Some(0), true, true, false));
        check(&used(&[], &[]), (None, false, false, false));
        let deleted = ("deletionTimestamp", Tree::from("2026-01-01T00:00:00Z"));
        check(&used(&["a"], std::slice::from_ref(&deleted)), (None, false, false, false));
        check(&used(&[], &[deleted]), (None, true, true, false));
        let owned = |pod: &str| {
            let owner = tree! { "kind" => "Pod", "name" => pod, "uid" => pod, "controller" => true };
            ("ownerReferences", list![owner])
        };
        check(&used(&["over"], &[owned("over")]), (Some(0), true, true, true));
        check(&used(&[], &[owned("a")]), (None, false, false, false));
    }
}
