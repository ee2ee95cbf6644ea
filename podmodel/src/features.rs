//! What a pod needs of its node's software, by the names under which nodes declare it.

use api::Tree;

/// A feature and whether a pod's spec uses it.
type Feature = (&'static str, fn(&Tree) -> bool);

/// In the order of their names.
const FEATURES: &[Feature] = &[
    ("RestartAllContainersOnContainerExits", restarts_all),
    ("UserNamespacesHostNetworkSupport", shares_network_alone),
];

pub(crate) fn needed(spec: &Tree) -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, uses)| uses(spec)).map(|(name, _)| *name).collect()
}

fn restarts_all(spec: &Tree) -> bool {
    let mut containers = spec.list("initContainers").iter().chain(spec.list("containers"));
    let restarts = |rule: &Tree| rule.str("action") == "RestartAllContainers";
    containers.any(|container| container.list("restartPolicyRules").iter().any(restarts))
}

/// The host's network without the host's users.
fn shares_network_alone(spec: &Tree) -> bool {
    spec.bool("hostNetwork") && spec.at("hostUsers").as_bool() == Some(false)
}
