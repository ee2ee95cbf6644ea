//! Which labels of its node a kubelet may not touch.

use api::Map;

/// Labels that a kubelet sets on its own node.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Changed labels that the node may not change: they influence scheduling.
pub(crate) fn forbidden_labels(new: &Map, old: &Map) -> Vec<String> {
    let changed = |key: &&str| new.get(key) != old.get(key);
    let mut keys: Vec<String> =
        new.keys().chain(old.keys()).filter(changed).filter(|key| is_reserved(key)).map(str::to_string).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let below = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if below("node-restriction.kubernetes.io") {
        return true;
    }
    let kubelets = KUBELET_LABELS.contains(&key) || below("kubelet.kubernetes.io") || below("node.kubernetes.io");
    (below("kubernetes.io") || below("k8s.io")) && !kubelets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    #[test]
    fn labels_that_steer_pods_are_not_the_nodes() {
        let cases = [
            ("foo", false),
            ("example.com/foo", false),
            ("kubernetes.io/hostname", false),
            ("kubelet.kubernetes.io/x", false),
            ("node.kubernetes.io/x", false),
            ("topology.kubernetes.io/zone", false),
            ("node-restriction.kubernetes.io/x", true),
            ("a.node-restriction.kubernetes.io/x", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("kubernetes.io/x", true),
            ("x.k8s.io/y", true),
            ("notkubernetes.io/x", false),
        ];
        for (key, want) in cases {
            assert_eq!(is_reserved(key), want, "{key}");
        }
        let (new, old) = (
            json(r#"{"kubernetes.io/a":"1","kubernetes.io/b":"2"}"#),
            json(r#"{"kubernetes.io/a":"1","k8s.io/c":""}"#),
        );
        let maps = (new.as_map().expect("a map"), old.as_map().expect("a map"));
        assert_eq!(forbidden_labels(maps.0, maps.1), ["k8s.io/c", "kubernetes.io/b"]);
    }
}
