//! The objects of a fake node: the Node that it registers, its status, and its lease.

use std::net::Ipv4Addr;

use api::time::{self, Timestamp};
use api::{Tree, list, tree};

/// The pod capacity of a node.
pub(crate) const MAX_PODS: u32 = 1000;
/// Marks a node as a fake one.
pub const LABEL: &str = "tiphys.io/fake-node";
/// A node with this annotation behaves as if its machine had failed.
pub const DOWN: &str = "tiphys.io/fake-down";
/// The most nodes: more would not fit into the range of pod addresses.
pub const MOST: u32 = 8000;
const PREFIX: &str = "fake-";

pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i64 = 40;
/// How often the lease is renewed.
pub(crate) const RENEW_SECONDS: i64 = 10;
/// How often the status is written although nothing has changed.
pub(crate) const REPORT_SECONDS: i64 = 300;

/// The range of each node's pods: 10.128.0.0/9 in parts of 1,024.
const POD_RANGE: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const POD_RANGE_STEP: u32 = 1024;
const NODE_RANGE: u32 = u32::from_be_bytes([172, 16, 0, 0]);

/// The name of a node.
pub fn name(node: u32) -> String {
    format!("{PREFIX}{node}")
}

/// The number of a node; None for nodes that are not ours.
pub fn number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

pub(crate) fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(NODE_RANGE + node + 1)
}

pub(crate) fn pod_address(node: u32, slot: u32) -> Ipv4Addr {
    Ipv4Addr::from(POD_RANGE + node * POD_RANGE_STEP + slot + 1)
}

pub(crate) fn slot_of(node: u32, address: Ipv4Addr) -> Option<u32> {
    u32::from(address).checked_sub(POD_RANGE + node * POD_RANGE_STEP + 1)
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Nothing,
    Create(Tree),
    /// A strategic merge patch of the status.
    Report(Tree),
}

/// The next step of a node for its own object; `seen` is None if there is no object.
pub(crate) fn plan(node: u32, seen: Option<&Tree>, now: i64) -> Step {
    let Some(seen) = seen else { return Step::Create(object(node, now)) };
    let ready = condition(seen, "Ready");
    let heartbeat = time::parse(ready.str("lastHeartbeatTime")).map_or(0, |time| time.seconds);
    let due = ready.str("status") != "True" || !(0..REPORT_SECONDS).contains(&(now - heartbeat));
    if due { Step::Report(tree! { "status" => status(node, Some(seen), now) }) } else { Step::Nothing }
}

/// Whether the annotation of a node simulates a failed machine.
pub(crate) fn is_down(node: &Tree) -> bool {
    let word = node.map("metadata.annotations").str(DOWN);
    !matches!(word, "" | "false")
}

fn condition<'a>(node: &'a Tree, name: &str) -> &'a Tree {
    static NONE: Tree = Tree::Null;
    node.list("status.conditions").iter().find(|condition| condition.str("type") == name).unwrap_or(&NONE)
}

fn object(node: u32, now: i64) -> Tree {
    let labels = [
        ("beta.kubernetes.io/arch", "amd64".to_string()),
        ("beta.kubernetes.io/os", "linux".to_string()),
        ("kubernetes.io/arch", "amd64".to_string()),
        ("kubernetes.io/hostname", name(node)),
        ("kubernetes.io/os", "linux".to_string()),
        ("topology.kubernetes.io/region", "fake".to_string()),
        ("topology.kubernetes.io/zone", format!("fake-{}", node % 3)),
        (LABEL, "true".to_string()),
    ];
    let mut map = api::Map::new();
    labels.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
    tree! {
        "apiVersion" => "v1",
        "kind" => "Node",
        "metadata" => tree! { "name" => name(node), "labels" => map },
        "status" => status(node, None, now),
    }
}

const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

fn status(node: u32, seen: Option<&Tree>, now: i64) -> Tree {
    let report = |(name, status, reason, message): (&str, &str, &str, &str)| {
        let old = seen.map(|seen| condition(seen, name)).filter(|old| old.str("status") == status);
        let since = old.map_or_else(|| time::format_seconds(now), |old| old.str("lastTransitionTime").into());
        tree! {
            "type" => name, "status" => status, "reason" => reason, "message" => message,
            "lastHeartbeatTime" => time::format_seconds(now), "lastTransitionTime" => since,
        }
    };
    let resources = || {
        tree! {
            "cpu" => "64", "memory" => "256Gi", "ephemeral-storage" => "1Ti", "pods" => MAX_PODS.to_string(),
        }
    };
    tree! {
        "addresses" => list![
            tree! { "type" => "InternalIP", "address" => address(node).to_string() },
            tree! { "type" => "Hostname", "address" => name(node) },
        ],
        "capacity" => resources(),
        "allocatable" => resources(),
        "conditions" => CONDITIONS.map(report).to_vec(),
        "daemonEndpoints" => tree! { "kubeletEndpoint" => tree! { "Port" => 10250 } },
        "nodeInfo" => tree! {
            "machineID" => name(node), "systemUUID" => name(node), "bootID" => name(node),
            "kernelVersion" => "fake", "osImage" => "fake", "containerRuntimeVersion" => "fake://1.0.0",
            "kubeletVersion" => "v1.37.0-fake", "kubeProxyVersion" => "", "operatingSystem" => "linux",
            "architecture" => "amd64",
        },
    }
}

/// A lease that is renewed now: the whole object, or what is patched into it.
pub(crate) fn lease(node: u32, owner_uid: &str, now: Timestamp) -> Tree {
    let owner = tree! { "apiVersion" => "v1", "kind" => "Node", "name" => name(node), "uid" => owner_uid };
    tree! {
        "apiVersion" => "coordination.k8s.io/v1",
        "kind" => "Lease",
        "metadata" => tree! {
            "name" => name(node), "namespace" => LEASE_NAMESPACE, "ownerReferences" => list![owner],
        },
        "spec" => tree! {
            "holderIdentity" => name(node),
            "leaseDurationSeconds" => LEASE_SECONDS,
            "renewTime" => time::format_micros(now),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        assert_eq!(number("fake-12"), Some(12));
        for foreign in ["fake-", "fake-01", "fake--1", "node-1", "fake-x"] {
            assert_eq!(number(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn ranges_do_not_meet() {
        assert_eq!(address(0).to_string(), "172.16.0.1");
        assert_eq!(pod_address(0, 0).to_string(), "10.128.0.1");
        assert_eq!(pod_address(1, 0).to_string(), "10.128.4.1");
        assert!(u32::from(pod_address(0, MAX_PODS - 1)) < u32::from(pod_address(1, 0)));
        assert!(pod_address(MOST - 1, MAX_PODS - 1) < Ipv4Addr::new(11, 0, 0, 0));
        assert_eq!(slot_of(3, pod_address(3, 77)), Some(77));
    }

    #[test]
    fn a_node_reports_when_it_is_due_and_when_it_is_thought_lost() {
        let Step::Create(mut seen) = plan(1, None, 1000) else { panic!("it is made") };
        assert_eq!(plan(1, Some(&seen), 1000 + REPORT_SECONDS - 1), Step::Nothing);
        let Step::Report(report) = plan(1, Some(&seen), 1000 + REPORT_SECONDS) else { panic!("a heartbeat") };
        let ready = condition(&report, "Ready");
        assert_eq!(ready.str("lastTransitionTime"), "1970-01-01T00:16:40Z", "nothing has changed");
        assert_eq!(ready.str("lastHeartbeatTime"), "1970-01-01T00:21:40Z");
        for condition in seen.list_mut("status.conditions") {
            condition.set("status", "Unknown");
        }
        let Step::Report(report) = plan(1, Some(&seen), 1001) else { panic!("it lives") };
        assert_eq!(condition(&report, "Ready").str("lastTransitionTime"), "1970-01-01T00:16:41Z");
    }

    #[test]
    fn a_node_is_lost_while_its_annotation_says_so() {
        let node = |word: &str| {
            let mut map = api::Map::new();
            map.insert(DOWN, word);
            tree! { "metadata" => tree! { "annotations" => map } }
        };
        assert!(is_down(&node("true")));
        assert!(!is_down(&node("false")) && !is_down(&Tree::Null));
    }
}
