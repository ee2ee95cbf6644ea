//! A Local APIService for each group version that the server itself serves.

use api::tree;

use super::{MANAGER, Object};
use crate::storage::resource::Resources;

/// A group's place among the groups, and its versions' places inside it; both higher first.
const PRIORITIES: &[(&str, i64)] = &[
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("apiextensions.k8s.io", 16700),
    ("admissionregistration.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("resource.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("internal.apiserver.k8s.io", 16000),
    ("storagemigration.k8s.io", 15800),
];

pub(crate) fn api_services(resources: &Resources) -> Vec<Object> {
    let mut seen = Vec::new();
    for resource in resources.all() {
        let version = (resource.kind.group, resource.kind.version);
        // The aggregator's own group is served before any APIService is looked at.
        if version.0 != "apiregistration.k8s.io" && !seen.contains(&version) {
            seen.push(version);
        }
    }
    seen.into_iter().map(|(group, version)| api_service(group, version)).collect()
}

fn api_service(group: &str, version: &str) -> Object {
    let spec = tree! {
        "group" => group, "version" => version,
        "groupPriorityMinimum" => group_priority(group), "versionPriority" => version_priority(group, version),
    };
    let labels = tree! { "kube-aggregator.kubernetes.io/automanaged" => "onstart" };
    Object {
        group: "apiregistration.k8s.io",
        version: "v1",
        plural: "apiservices",
        manager: MANAGER,
        tree: tree! {
            "kind" => "APIService", "apiVersion" => "apiregistration.k8s.io/v1",
            "metadata" => tree! { "name" => format!("{version}.{group}"), "labels" => labels }, "spec" => spec,
        },
    }
}

fn group_priority(group: &str) -> i64 {
    PRIORITIES.iter().find(|(name, _)| *name == group).map_or(1000, |(_, priority)| *priority)
}

fn version_priority(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io", "v1") => 21,
        (_, "v1") => 15,
        (_, version) if version.contains("alpha") => 1,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_group_has_its_place() {
        let groups = kinds::ALL.iter().map(|kind| kind.group).filter(|group| *group != "apiregistration.k8s.io");
        for group in groups {
            assert!(PRIORITIES.iter().any(|(name, _)| *name == group), "{group} has no priority");
        }
        assert_eq!(api_service("apps", "v1").tree.int("spec.groupPriorityMinimum"), Some(17800));
        assert_eq!(api_service("", "v1").tree.str("metadata.name"), "v1.");
    }
}
