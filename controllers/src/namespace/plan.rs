//! A terminating namespace is finalized once it is empty; until then its conditions report the remaining objects.

use std::collections::BTreeMap;

use api::time::format_seconds;
use api::{Tree, tree};

use crate::discovery::{Discovery, ServedResource};

pub(super) const FINALIZER: &str = "kubernetes";
/// How long objects with finalizers get before the next sync.
const FINALIZER_SECONDS: i64 = 15;

/// The remaining objects of a resource after their deletion was requested.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RemainingObjects {
    pub count: usize,
    pub finalizers: BTreeMap<String, usize>,
    /// The longest remaining grace period.
    pub grace_seconds: i64,
}

/// The result of deleting the content.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub stale: Vec<String>,
    pub failures: Vec<String>,
    /// By `RESOURCE.GROUP`.
    pub left: BTreeMap<String, RemainingObjects>,
}

/// Resources in deletion order: nothing else is deleted before the last pod is deleted, so that no pod outlives what it
/// needs.
pub(super) fn stages(discovery: &Discovery) -> [Vec<&ServedResource>; 2] {
    let all = discovery.resources.iter().filter(|served| served.namespaced && served.supports(&["delete"]));
    let (pods, others) = all.partition(|served| served.group.is_empty() && served.plural == "pods");
    [pods, others]
}

pub(super) fn name_of(served: &ServedResource) -> String {
    format!("{}.{}", served.plural, served.group)
}

/// Summarizes the remaining objects.
pub(super) fn left(items: &[Tree], deleted_at: i64, now: i64) -> RemainingObjects {
    let mut left = RemainingObjects { count: items.len(), ..RemainingObjects::default() };
    for item in items {
        for finalizer in item.list("metadata.finalizers").iter().filter_map(Tree::as_str) {
            *left.finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
        let has_ended = matches!(item.str("status.phase"), "Succeeded" | "Failed");
        let grace = item.int("spec.terminationGracePeriodSeconds").filter(|_| !has_ended).unwrap_or_default();
        left.grace_seconds = left.grace_seconds.max(grace);
    }
    // A pod that exceeds its grace period no longer delays the next sync.
    if now - deleted_at >= left.grace_seconds {
        left.grace_seconds = 0;
    }
    left
}

impl Outcome {
    pub(super) fn add(&mut self, served: &ServedResource, namespace: &str, left: RemainingObjects) {
        if left.count == 0 {
            return;
        }
        if left.grace_seconds == 0 && left.finalizers.is_empty() {
            let place = format!("{}, Resource={}", served.group_version(), served.plural);
            self.failures.push(format!("unexpected items still remain in namespace: {namespace} for gvr: {place}"));
        }
        self.left.insert(name_of(served), left);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.failures.is_empty() && self.stale.is_empty()
    }

    /// The delay of the next sync; events usually trigger it earlier.
    pub(super) fn pause_seconds(&self) -> Option<i64> {
        let of = |left: &RemainingObjects| match left.grace_seconds {
            0 if left.finalizers.is_empty() => 0,
            0 => FINALIZER_SECONDS,
            grace => grace,
        };
        let longest = self.left.values().map(of).max().unwrap_or_default();
        (longest > 0).then_some(longest / 2 + 1)
    }

    /// The five conditions in upstream's order, with the problem if there is one.
    fn findings(&self) -> [(&'static Condition, Option<String>); 5] {
        let left = self.left.iter().map(|(name, left)| format!("{name} has {} resource instances", left.count));
        let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, count) in self.left.values().flat_map(|left| &left.finalizers) {
            *finalizers.entry(name).or_default() += count;
        }
        let finalizers = finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
        let mut failures = self.failures.clone();
        failures.sort();
        let tell = |texts: Vec<String>, prefix: String| (!texts.is_empty()).then(|| prefix + &texts.join(", "));
        let failed = format!("Failed to delete all resource types, {} remaining: ", failures.len());
        let wrong = [
            discovery_failure(&self.stale),
            None,
            tell(failures, failed),
            tell(left.collect(), "Some resources are remaining: ".to_string()),
            tell(finalizers.collect(), "Some content in the namespace has finalizers remaining: ".to_string()),
        ];
        let mut wrong = wrong.into_iter();
        CONDITIONS.each_ref().map(|condition| (condition, wrong.next().flatten()))
    }
}

fn discovery_failure(stale: &[String]) -> Option<String> {
    let each = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
    let all: Vec<String> = stale.iter().map(each).collect();
    (!stale.is_empty()).then(|| {
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            stale.len(),
            all.join(", ")
        )
    })
}

struct Condition {
    kind: &'static str,
    good: [&'static str; 2],
    bad: &'static str,
}

static CONDITIONS: [Condition; 5] = [
    Condition {
        kind: "NamespaceDeletionDiscoveryFailure",
        good: ["ResourcesDiscovered", "All resources successfully discovered"],
        bad: "DiscoveryFailed",
    },
    Condition {
        kind: "NamespaceDeletionGroupVersionParsingFailure",
        good: ["ParsedGroupVersions", "All legacy kube types successfully parsed"],
        bad: "GroupVersionParsingFailed",
    },
    Condition {
        kind: "NamespaceDeletionContentFailure",
        good: ["ContentDeleted", "All content successfully deleted, may be waiting on finalization"],
        bad: "ContentDeletionFailed",
    },
    Condition {
        kind: "NamespaceContentRemaining",
        good: ["ContentRemoved", "All content successfully removed"],
        bad: "SomeResourcesRemain",
    },
    Condition {
        kind: "NamespaceFinalizersRemaining",
        good: ["ContentHasNoFinalizers", "All content-preserving finalizers finished"],
        bad: "SomeFinalizersRemain",
    },
];

/// The namespace with updated conditions; None if they are up to date.
pub(crate) fn with_conditions(namespace: &Tree, outcome: &Outcome, now: i64) -> Option<Tree> {
    let mut conditions = namespace.list("status.conditions").to_vec();
    for (condition, wrong) in outcome.findings() {
        let (status, reason, message) = match &wrong {
            Some(message) => ("True", condition.bad, message.as_str()),
            None => ("False", condition.good[0], condition.good[1]),
        };
        set_condition(&mut conditions, condition.kind, status, reason, message, now);
    }
    (conditions != namespace.list("status.conditions")).then(|| {
        let mut changed = namespace.clone();
        changed.child("status").set("conditions", conditions);
        changed
    })
}

fn set_condition(conditions: &mut Vec<Tree>, kind: &str, status: &str, reason: &str, message: &str, now: i64) {
    let old = conditions.iter().position(|condition| condition.str("type") == kind);
    let same_status = old.filter(|at| conditions[*at].str("status") == status);
    let since =
        same_status.map_or(Tree::from(format_seconds(now)), |at| conditions[at].at("lastTransitionTime").clone());
    let new = tree! {
        "type" => kind,
        "status" => status,
        "lastTransitionTime" => since,
        "reason" => reason,
        "message" => message,
    };
    match old {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
}

/// The namespace without its `kubernetes` finalizer.
pub(crate) fn finalized(namespace: &Tree) -> Tree {
    let mut finalized = namespace.clone();
    let others = namespace.list("spec.finalizers").iter().filter(|name| name.as_str() != Some(FINALIZER));
    let others: Vec<Tree> = others.cloned().collect();
    finalized.child("spec").set("finalizers", others);
    finalized
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn served(group: &str, plural: &str) -> ServedResource {
        ServedResource {
            group: group.into(),
            version: "v1".into(),
            plural: plural.into(),
            kind: "".into(),
            namespaced: true,
            verbs: ["delete".into()].into(),
        }
    }

    #[test]
    fn deletes_pods_first() {
        let nodes = ServedResource { namespaced: false, ..served("", "nodes") };
        let bindings = ServedResource { verbs: ["create".into()].into(), ..served("", "bindings") };
        let resources =
            vec![served("", "configmaps"), nodes, bindings, served("", "pods"), served("metrics.k8s.io", "pods")];
        let discovery = Discovery { resources, stale: vec![] };
        let names = stages(&discovery).map(|stage| stage.iter().map(|served| name_of(served)).collect::<Vec<_>>());
        assert_eq!(names, [vec!["pods."], vec!["configmaps.", "pods.metrics.k8s.io"]]);
    }

    #[test]
    fn counts_remaining_objects() {
        let pod = |grace: i64, phase: &str| {
            let spec = tree! { "terminationGracePeriodSeconds" => grace };
            tree! { "metadata" => tree! {}, "spec" => spec, "status" => tree! { "phase" => phase } }
        };
        let held = tree! { "metadata" => tree! { "finalizers" => list!["e.com/hold", "x"] } };
        assert_eq!(left(&[], 0, 5), RemainingObjects::default());
        assert_eq!(left(&[pod(30, "Running"), pod(60, "Failed")], 0, 29).grace_seconds, 30);
        assert_eq!(left(&[pod(30, "Running")], 0, 30).grace_seconds, 0, "its time is up");
        let both = left(&[held.clone(), held], 0, 5);
        assert_eq!((both.count, both.finalizers["x"], both.finalizers["e.com/hold"]), (2, 2, 2));
    }

    #[test]
    fn conditions_report_what_blocks() {
        let check = |outcome: &Outcome, want: [(&str, &str); 5]| {
            let namespace = tree! { "metadata" => tree! {}, "status" => tree! { "phase" => "Terminating" } };
            let changed = with_conditions(&namespace, outcome, 7).expect("they are new");
            let read = |tree: &Tree| {
                assert_eq!(tree.str("lastTransitionTime"), "1970-01-01T00:00:07Z");
                (tree.str("status").to_string(), format!("{}: {}", tree.str("reason"), tree.str("message")))
            };
            let got: Vec<_> = changed.list("status.conditions").iter().map(read).collect();
            let want = want.map(|(status, text)| (status.to_string(), text.to_string()));
            assert_eq!(got, want);
            assert_eq!(with_conditions(&changed, outcome, 8), None, "nothing is written twice");
        };
        let mut good = [
            ("False", "ResourcesDiscovered: All resources successfully discovered"),
            ("False", "ParsedGroupVersions: All legacy kube types successfully parsed"),
            ("False", "ContentDeleted: All content successfully deleted, may be waiting on finalization"),
            ("False", "ContentRemoved: All content successfully removed"),
            ("False", "ContentHasNoFinalizers: All content-preserving finalizers finished"),
        ];
        check(&Outcome::default(), good);

        let mut outcome = Outcome::default();
        let finalizers = BTreeMap::from([("e.com/hold".to_string(), 1)]);
        outcome.add(&served("", "configmaps"), "bye", RemainingObjects { count: 1, finalizers, grace_seconds: 0 });
        assert_eq!(outcome.pause_seconds(), Some(8));
        good[3] = ("True", "SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances");
        good[4] = (
            "True",
            "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: e.com/hold in 1 resource instances",
        );
        check(&outcome, good);

        outcome.add(
            &served("apps", "deployments"),
            "bye",
            RemainingObjects { count: 2, ..RemainingObjects::default() },
        );
        outcome.stale.push("e.com/v1".to_string());
        good[0] = (
            "True",
            "DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: e.com/v1: stale GroupVersion discovery: e.com/v1",
        );
        good[2] = (
            "True",
            "ContentDeletionFailed: Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: bye for gvr: apps/v1, Resource=deployments",
        );
        good[3].1 = "SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 2 resource instances";
        check(&outcome, good);
    }

    #[test]
    fn unchanged_conditions_keep_their_time() {
        let namespace = tree! { "status" => tree! {} };
        let first = with_conditions(&namespace, &Outcome::default(), 1).expect("they are new");
        let mut outcome = Outcome::default();
        outcome.add(
            &served("", "pods"),
            "bye",
            RemainingObjects { count: 2, grace_seconds: 30, ..RemainingObjects::default() },
        );
        assert_eq!(outcome.pause_seconds(), Some(16));
        let second = with_conditions(&first, &outcome, 2).expect("there is content");
        let times: Vec<&str> =
            second.list("status.conditions").iter().map(|one| one.str("lastTransitionTime")).collect();
        let (one, two) = ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z");
        assert_eq!(times, [one, one, one, two, one]);
    }

    #[test]
    fn removes_only_the_kubernetes_finalizer() {
        let namespace = tree! { "spec" => tree! { "finalizers" => list!["kubernetes", "other"] } };
        assert_eq!(finalized(&namespace).list("spec.finalizers"), [Tree::from("other")]);
    }
}
