//! Whether a pod may stay on a node, and for how long.

use std::time::Duration;

use api::time::format_seconds;
use api::{Tree, tree};

use crate::support::conditions;
use crate::support::taints::{NO_EXECUTE, tolerates, with_effect};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TolerationTime {
    Forever,
    /// For this duration, counted from when the taints were first observed.
    For(Duration),
    No,
}

pub(super) fn toleration_time(pod: &Tree, node: Option<&Tree>) -> TolerationTime {
    let Some(node) = node else { return TolerationTime::Forever };
    let mut stay = TolerationTime::Forever;
    for taint in with_effect(node, NO_EXECUTE) {
        let matching = pod.list("spec.tolerations").iter().find(|toleration| tolerates(toleration, taint));
        stay = match (matching.map(seconds), stay) {
            (None, _) => return TolerationTime::No,
            (Some(None), stay) => stay,
            (Some(Some(more)), TolerationTime::For(less)) => TolerationTime::For(more.min(less)),
            (Some(Some(seconds)), _) => TolerationTime::For(seconds),
        };
    }
    stay
}

/// None is unlimited; negative values are zero.
fn seconds(toleration: &Tree) -> Option<Duration> {
    let seconds = toleration.int("tolerationSeconds")?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The DisruptionTarget condition; None if it is set already.
pub(super) fn disruption(pod: &Tree, now: i64) -> Option<Tree> {
    let condition = tree! {
        "type" => "DisruptionTarget",
        "observedGeneration" => pod.int("metadata.generation").unwrap_or_default(),
        "status" => "True",
        "lastProbeTime" => Tree::Null,
        "lastTransitionTime" => format_seconds(now),
        "reason" => "DeletionByTaintManager",
        "message" => "Taint manager: deleting due to NoExecute taint",
    };
    let same = |old: &Tree| {
        let equal = |field: &str| old.at(field) == condition.at(field);
        ["type", "status", "reason", "message", "observedGeneration"].into_iter().all(equal)
    };
    let is_there = pod.list("status.conditions").iter().any(same);
    (!is_there).then(|| {
        let uid = tree! { "uid" => pod.str("metadata.uid") };
        tree! { "metadata" => uid, "status" => conditions::status_patch(pod, condition) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(keys: &[&str]) -> Tree {
        let taint = |key: &&str| {
            let effect = if key.starts_with('~') { "NoSchedule" } else { NO_EXECUTE };
            tree! { "key" => key.trim_start_matches('~'), "effect" => effect }
        };
        tree! { "spec" => tree! { "taints" => keys.iter().map(taint).collect::<Vec<_>>() } }
    }

    /// Tolerations as `KEY` or `KEY:SECONDS`.
    fn pod(tolerations: &[&str]) -> Tree {
        let toleration = |text: &&str| match text.split_once(':') {
            None => tree! { "key" => *text, "operator" => "Exists" },
            Some((key, seconds)) => {
                let seconds: i64 = seconds.parse().expect("a number");
                tree! { "key" => key, "operator" => "Exists", "tolerationSeconds" => seconds }
            }
        };
        tree! { "spec" => tree! { "tolerations" => tolerations.iter().map(toleration).collect::<Vec<_>>() } }
    }

    #[test]
    fn shortest_toleration_applies() {
        let check = |taints: &[&str], tolerations: &[&str], want: TolerationTime| {
            assert_eq!(toleration_time(&pod(tolerations), Some(&node(taints))), want, "{taints:?} {tolerations:?}");
        };
        let seconds = |seconds| TolerationTime::For(Duration::from_secs(seconds));
        check(&[], &[], TolerationTime::Forever);
        check(&["~a"], &[], TolerationTime::Forever);
        check(&["a"], &[], TolerationTime::No);
        check(&["a"], &["a"], TolerationTime::Forever);
        check(&["a"], &["a:30"], seconds(30));
        check(&["a", "b"], &["a:30", "b:10"], seconds(10));
        check(&["a", "b"], &["a:30", "b"], seconds(30));
        check(&["a", "b"], &["a:30"], TolerationTime::No);
        check(&["a"], &["a:-1"], seconds(0));
        assert_eq!(toleration_time(&pod(&[]), None), TolerationTime::Forever, "a deleted node has no taints");
    }

    #[test]
    fn sets_disruption_condition_once() {
        let mut pod = pod(&[]);
        pod.child("metadata").set("generation", 3);
        let patch = disruption(&pod, 5).expect("it is new");
        pod.set("status", patch.at("status").clone());
        assert_eq!(disruption(&pod, 6), None);
        assert_eq!(pod.list("status.conditions")[0].int("observedGeneration"), Some(3));
    }
}
