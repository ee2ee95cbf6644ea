//! The taints for a node's conditions, the status of a silent node, and the status of its pods.

use api::time::format_seconds;
use api::{Tree, tree};

use crate::support::taints::{self, NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const SILENT: &str = "NodeStatusUnknown";

/// Condition, status, and the taint for it.
static CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// The conditions set by the kubelet, which become Unknown when it is silent.
static KUBELETS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Deprecated labels and the labels they duplicate.
static REPEATED_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

pub(super) fn condition<'a>(object: &'a Tree, kind: &str) -> Option<&'a Tree> {
    object.list("status.conditions").iter().find(|condition| condition.str("type") == kind)
}

pub(super) fn is_ready(node: &Tree) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.str("status") == "True")
}

/// The status of a silent node; None if it is Unknown already.
pub(super) fn silent(node: &Tree, now: i64) -> Option<Tree> {
    let mut conditions = node.list("status.conditions").to_vec();
    for kind in KUBELETS {
        match conditions.iter_mut().find(|condition| condition.str("type") == kind) {
            Some(condition) if condition.str("status") == "Unknown" => {}
            Some(condition) => {
                condition.set("status", "Unknown");
                condition.set("reason", SILENT);
                condition.set("message", "Kubelet stopped posting node status.");
                condition.set("lastTransitionTime", format_seconds(now));
            }
            None => conditions.push(never_reported(node, kind, now)),
        }
    }
    (conditions != node.list("status.conditions")).then(|| {
        let mut changed = node.clone();
        changed.child("status").set("conditions", conditions);
        changed
    })
}

fn never_reported(node: &Tree, kind: &str, now: i64) -> Tree {
    tree! {
        "type" => kind,
        "status" => "Unknown",
        "lastHeartbeatTime" => node.at("metadata.creationTimestamp").clone(),
        "lastTransitionTime" => format_seconds(now),
        "reason" => "NodeStatusNeverUpdated",
        "message" => "Kubelet never posted node status.",
    }
}

/// Whether this controller has marked the node as silent, and so is responsible for the readiness of its pods.
pub(crate) fn is_silent(node: &Tree) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.str("status") == "Unknown" && ready.str("reason") == SILENT)
}

/// The status of a pod that is no longer ready because its node is silent.
pub(crate) fn unready_pod(pod: &Tree, now: i64) -> Option<Tree> {
    condition(pod, "Ready").filter(|ready| ready.str("status") != "False")?;
    let mut changed = pod.clone();
    for condition in changed.list_mut("status.conditions") {
        if condition.str("type") == "Ready" {
            condition.set("status", "False");
            condition.set("lastTransitionTime", format_seconds(now));
        }
    }
    Some(changed)
}

/// The change of the NoExecute taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoExecuteTaint {
    Keep,
    Remove,
    /// There is another NoExecute taint, which is replaced at once.
    Swap(&'static str),
    /// When the rate limit of the zone permits it.
    Add(&'static str),
}

pub(super) fn no_execute_taint(node: &Tree) -> NoExecuteTaint {
    let (wanted, other) = match condition(node, "Ready").map(|ready| ready.str("status")) {
        None => return NoExecuteTaint::Keep,
        Some("True") => return NoExecuteTaint::Remove,
        Some("False") => (NOT_READY, UNREACHABLE),
        Some(_) => (UNREACHABLE, NOT_READY),
    };
    let has = |key: &str| node.list("spec.taints").iter().any(|taint| taints::is(taint, key, NO_EXECUTE));
    match (has(wanted), has(other)) {
        (true, false) => NoExecuteTaint::Keep,
        (_, true) => NoExecuteTaint::Swap(wanted),
        (false, false) => NoExecuteTaint::Add(wanted),
    }
}

/// The desired taints of the node; None if they are up to date.
pub(super) fn taints(node: &Tree, drive: NoExecuteTaint, now: i64) -> Option<Vec<Tree>> {
    let wanted = no_schedule_keys(node);
    let ours = |key: &str| key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, ours)| *ours == key);
    let keeps_driving = |key: &str| match drive {
        NoExecuteTaint::Keep | NoExecuteTaint::Add(_) => true,
        NoExecuteTaint::Remove => false,
        NoExecuteTaint::Swap(wanted) => wanted == key,
    };
    let keeps = |taint: &&Tree| match (taint.str("effect"), taint.str("key")) {
        (NO_SCHEDULE, key) if ours(key) => wanted.contains(&key),
        (NO_EXECUTE, key @ (NOT_READY | UNREACHABLE)) => keeps_driving(key),
        _ => true,
    };
    let old = node.list("spec.taints");
    let mut new: Vec<Tree> = old.iter().filter(keeps).cloned().collect();
    let mut add = |key: &str, effect: &str| {
        if !new.iter().any(|taint| taints::is(taint, key, effect)) {
            new.push(tree! { "key" => key, "effect" => effect, "timeAdded" => format_seconds(now) });
        }
    };
    wanted.iter().for_each(|key| add(key, NO_SCHEDULE));
    if let NoExecuteTaint::Swap(key) | NoExecuteTaint::Add(key) = drive {
        add(key, NO_EXECUTE);
    }
    (new != old).then_some(new)
}

fn no_schedule_keys(node: &Tree) -> Vec<&'static str> {
    let holds = |(kind, status, _): &&(&str, &str, &str)| {
        condition(node, kind).is_some_and(|condition| condition.str("status") == *status)
    };
    let conditions = CONDITION_TAINTS.iter().filter(holds).map(|(_, _, key)| *key);
    conditions.chain(node.bool("spec.unschedulable").then_some(UNSCHEDULABLE)).collect()
}

/// The labels to merge, if any.
pub(super) fn labels(node: &Tree) -> Option<Tree> {
    let labels = node.map("metadata.labels");
    let differs = |(from, to): &&(&str, &str)| labels.contains(from) && labels.get(from) != labels.get(to);
    let mut missing = api::tree::Map::new();
    for (from, to) in REPEATED_LABELS.iter().filter(differs) {
        missing.insert(*to, labels.str(from));
    }
    (!missing.is_empty()).then(|| tree! { "metadata" => tree! { "labels" => missing } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)]) -> Tree {
        let condition = |(kind, status): &(&str, &str)| tree! { "type" => *kind, "status" => *status };
        let taint = |(key, effect): &(&str, &str)| tree! { "key" => *key, "effect" => *effect };
        tree! {
            "metadata" => tree! { "creationTimestamp" => "2026-01-01T00:00:00Z" },
            "spec" => tree! { "taints" => taints.iter().map(taint).collect::<Vec<_>>() },
            "status" => tree! { "conditions" => conditions.iter().map(condition).collect::<Vec<_>>() },
        }
    }

    #[test]
    fn taints_follow_conditions() {
        let check = |conditions: &[(&str, &str)], before: &[(&str, &str)], permitted: bool, want: &[(&str, &str)]| {
            let node = node(conditions, before);
            let drive = match no_execute_taint(&node) {
                NoExecuteTaint::Add(_) if !permitted => NoExecuteTaint::Keep,
                drive => drive,
            };
            let after = taints(&node, drive, 9).unwrap_or_else(|| node.list("spec.taints").to_vec());
            let got: Vec<(&str, &str)> = after.iter().map(|taint| (taint.str("key"), taint.str("effect"))).collect();
            assert_eq!(got, want, "{conditions:?} {before:?}");
            for taint in after.iter().filter(|taint| !node.list("spec.taints").contains(taint)) {
                assert_eq!(taint.str("timeAdded"), "1970-01-01T00:00:09Z");
            }
        };
        let own = ("x", NO_EXECUTE);
        check(&[("Ready", "True")], &[(NOT_READY, NO_SCHEDULE)], true, &[]);
        check(&[], &[(NOT_READY, NO_SCHEDULE)], true, &[]);
        check(&[("Ready", "False")], &[own], true, &[own, (NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)]);
        check(&[("Ready", "False")], &[own], false, &[own, (NOT_READY, NO_SCHEDULE)]);
        let unreachable = [(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)];
        check(&[("Ready", "Unknown")], &[(NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)], false, &unreachable);
        check(&[("Ready", "Unknown")], &unreachable, true, &unreachable);
        check(&[("Ready", "True")], &unreachable, true, &[]);
        check(&[("Ready", "True")], &[(NOT_READY, NO_EXECUTE), own], true, &[own]);
        let pressure = "node.kubernetes.io/disk-pressure";
        check(&[("Ready", "True"), ("DiskPressure", "True")], &[], true, &[(pressure, NO_SCHEDULE)]);
        check(&[("Ready", "True"), ("DiskPressure", "False")], &[(pressure, NO_SCHEDULE)], true, &[]);
        check(&[("Ready", "True")], &[("a", NO_SCHEDULE)], true, &[("a", NO_SCHEDULE)]);
    }

    #[test]
    fn unschedulable_nodes_are_tainted() {
        let mut node = node(&[("Ready", "True")], &[]);
        node.child("spec").set("unschedulable", true);
        let after = taints(&node, NoExecuteTaint::Remove, 9).expect("a taint");
        assert_eq!((after.len(), after[0].str("key")), (1, UNSCHEDULABLE));
        node.child("spec").set("taints", after);
        assert_eq!(taints(&node, NoExecuteTaint::Remove, 10), None);
        node.child("spec").set("unschedulable", false);
        assert_eq!(taints(&node, NoExecuteTaint::Remove, 10), Some(vec![]));
    }

    #[test]
    fn silent_nodes_become_unknown() {
        let gone = silent(&node(&[("Ready", "True"), ("DiskPressure", "False"), ("Other", "True")], &[]), 9);
        let gone = gone.expect("it changes");
        let read = |condition: &Tree| {
            format!("{}={} {}", condition.str("type"), condition.str("status"), condition.str("reason"))
        };
        let got: Vec<String> = gone.list("status.conditions").iter().map(read).collect();
        let want = [
            "Ready=Unknown NodeStatusUnknown",
            "DiskPressure=Unknown NodeStatusUnknown",
            "Other=True ",
            "MemoryPressure=Unknown NodeStatusNeverUpdated",
            "PIDPressure=Unknown NodeStatusNeverUpdated",
        ];
        assert_eq!(got, want);
        assert_eq!(gone.list("status.conditions")[3].str("lastHeartbeatTime"), "2026-01-01T00:00:00Z");
        assert!(is_silent(&gone));
        assert_eq!(silent(&gone, 10), None, "nothing is written twice");
        assert!(!is_silent(&node(&[("Ready", "Unknown")], &[])));
    }

    #[test]
    fn pods_of_silent_nodes_become_unready() {
        let pod = |status: &str| node(&[("Ready", status), ("Initialized", "True")], &[]);
        let changed = unready_pod(&pod("True"), 9).expect("it changes");
        assert_eq!(condition(&changed, "Ready").map(|ready| ready.str("status")), Some("False"));
        assert_eq!(condition(&changed, "Initialized").map(|ready| ready.str("status")), Some("True"));
        assert_eq!(unready_pod(&pod("False"), 9), None);
        assert_eq!(unready_pod(&node(&[], &[]), 9), None);
    }

    #[test]
    fn deprecated_labels_are_duplicated() {
        let labels_of = |map: Tree| labels(&tree! { "metadata" => tree! { "labels" => map } });
        assert_eq!(labels_of(tree! {}), None);
        let wanted = labels_of(tree! { "kubernetes.io/os" => "linux" }).expect("a label");
        assert_eq!(wanted.map("metadata.labels").str("beta.kubernetes.io/os"), "linux");
        assert_eq!(labels_of(tree! { "kubernetes.io/os" => "linux", "beta.kubernetes.io/os" => "linux" }), None);
    }
}
