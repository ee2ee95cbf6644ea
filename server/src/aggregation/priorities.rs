//! The order of groups and versions in discovery: higher priorities first.

/// The priority of a group, and of its versions inside it; higher values come first.
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

/// The priority of a group that this server serves; groups of definitions have the lowest one.
pub(crate) fn group_priority(group: &str) -> i64 {
    PRIORITIES.iter().find(|(name, _)| *name == group).map_or(1000, |(_, priority)| *priority)
}

/// The priority of a version inside of its group.
pub(crate) fn version_priority(group: &str, version: &str) -> i64 {
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
    fn every_built_in_group_has_a_priority() {
        let groups = kinds::ALL.iter().map(|kind| kind.group).filter(|group| *group != "apiregistration.k8s.io");
        for group in groups {
            assert!(PRIORITIES.iter().any(|(name, _)| *name == group), "{group} has no priority");
        }
    }
}
