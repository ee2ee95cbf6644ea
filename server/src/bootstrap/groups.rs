//! A Local APIService for each group version that the server itself serves.

use api::tree;

use super::{MANAGER, Object};
use crate::aggregation::priorities::{group_priority, version_priority};
use crate::storage::resource::Resources;

pub(crate) fn api_services(resources: &Resources) -> Vec<Object> {
    let mut seen = Vec::new();
    for resource in resources.built_in() {
        let version = (resource.kind.group(), resource.kind.version());
        // The aggregator's own group is served without an APIService.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_services_have_the_priority_of_their_group() {
        assert_eq!(api_service("apps", "v1").tree.int("spec.groupPriorityMinimum"), Some(17800));
        assert_eq!(api_service("", "v1").tree.str("metadata.name"), "v1.");
    }
}
