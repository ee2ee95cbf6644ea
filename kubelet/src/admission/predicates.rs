//! Predicates that the scheduler checks too: another client may have bound the pod, or the node has changed since.

use podmodel::{Effect, HostPort, Resources};

use super::preempt::Shortage;
use super::{PodAdmitAttributes, refused};
use crate::model::problem::Problem;

type Verdict = Result<(), Problem>;

fn failed(predicate: &'static str, why: &str) -> Verdict {
    refused(predicate, format!("Predicate {predicate} failed: {why}"))
}

pub(crate) fn resources(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    shortages(attributes).first().map_or(Ok(()), insufficient_resource)
}

/// All that is not there for the pod.
pub(crate) fn shortages(attributes: &PodAdmitAttributes<'_>) -> Vec<Shortage> {
    let mut found = Vec::new();
    let count = i64::try_from(attributes.others.len()).unwrap_or(i64::MAX);
    if count + 1 > attributes.node.allowed_pods {
        found.push(Shortage { name: "pods".to_string(), requested: 1, used: count, all: attributes.node.allowed_pods });
    }
    let mut used = Resources::default();
    attributes.others.iter().for_each(|other| used.add(&other.spec.requests));
    let wanted = &attributes.pod.spec.requests;
    let names = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let others = wanted.others.iter().map(|(name, _)| name.as_str());
    for name in names.chain(others).filter(|name| !attributes.rules.given.iter().any(|given| given == name)) {
        let (requested, used, all) = (wanted.get(name), used.get(name), attributes.node.allocatable.get(name));
        // A device that the node does not know at all was the scheduler's business: its plugin may be restarting.
        let is_known = all > 0 || !kinds::resources::is_extended(name);
        if requested > 0 && is_known && requested > all - used {
            found.push(Shortage { name: name.to_string(), requested, used, all });
        }
    }
    found
}

fn insufficient_resource(short: &Shortage) -> Verdict {
    let Shortage { name, requested, used, all } = short;
    let why =
        format!("Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {all}");
    refused(format!("OutOf{name}"), why)
}

pub(crate) fn name(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    let wanted = attributes.pod.node_name.as_str();
    if wanted.is_empty() || wanted == attributes.node.name.as_str() {
        return Ok(());
    }
    failed("NodeName", "node(s) didn't match the requested node name")
}

pub(crate) fn ports(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    let taken = |port: &HostPort| {
        attributes.others.iter().any(|other| other.spec.ports.iter().any(|other| other.conflicts_with(port)))
    };
    if attributes.pod.spec.ports.iter().any(taken) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    Ok(())
}

pub(crate) fn affinity(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    if attributes.pod.spec.selects(&attributes.node.name, &attributes.node.labels) {
        return Ok(());
    }
    failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
}

/// Only NoExecute taints: other taints concern the scheduler. Static pods are exempt.
pub(crate) fn taints(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    if crate::model::pod::is_static(attributes.tree) {
        return Ok(());
    }
    let mut strong = attributes.node.taints.iter().filter(|taint| taint.effect == Effect::NoExecute);
    let tolerations = &attributes.pod.spec.tolerations;
    if strong.all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint))) {
        return Ok(());
    }
    failed("TaintToleration", "node(s) had untolerated taint(s)")
}

pub(crate) fn features(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    let declared = &attributes.node.declared_features;
    let missing: Vec<&str> = attributes
        .pod
        .spec
        .needed_features
        .iter()
        .copied()
        .filter(|needed| !declared.iter().any(|declared| declared.as_str() == *needed))
        .collect();
    if missing.is_empty() || declared.is_empty() {
        return Ok(());
    }
    refused(
        "PodFeatureUnsupported",
        format!("Pod requires node features that are not available: {}", missing.join(", ")),
    )
}

pub(crate) fn operating_system(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    let label = attributes.tree.map("metadata.labels").str("kubernetes.io/os");
    if !matches!(label, "" | "linux") {
        return refused(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        );
    }
    match attributes.tree.str("spec.os.name") {
        "" | "linux" => Ok(()),
        _ => refused("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
    }
}

/// Only a runtime that reports the feature can leave out the groups that an image gives its user.
pub(crate) fn groups_policy(attributes: &PodAdmitAttributes<'_>) -> Verdict {
    let is_strict = attributes.tree.str("spec.securityContext.supplementalGroupsPolicy") == "Strict";
    if is_strict && !attributes.rules.has_groups_policy {
        return refused(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        );
    }
    Ok(())
}
