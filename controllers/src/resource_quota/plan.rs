//! Computes the status of a quota.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::{Format, Quantity};
use api::time::{self, Timestamp};
use api::{Tree, tree};
use kinds::Kind;
use kinds::quota::{self, Usage};

/// The objects of a resource in the quota's namespace.
pub(super) enum CountedObjects {
    /// Their usage matters.
    Objects(&'static Kind, Vec<Arc<Tree>>),
    /// Only their number matters.
    Number(usize),
}

/// By group and plural. Resources that are not served are missing.
pub(super) type Sources = BTreeMap<(String, String), CountedObjects>;

/// The names that a quota limits, each with the resource it counts.
pub(super) fn names(quota: &Tree) -> impl Iterator<Item = (&str, (&str, &str))> {
    quota.map("spec.hard").keys().filter_map(|name| Some((name, quota::source(name)?)))
}

/// Whether the usage of a resource depends on the objects, not only on their number.
pub(crate) fn has_usage(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("", "pods" | "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")
    )
}

/// The status; None if it is up to date.
pub(super) fn plan(quota: &Tree, sources: &Sources, now: Timestamp) -> Option<Tree> {
    let mut used = Usage::new();
    for (name, (group, plural)) in names(quota) {
        match sources.get(&(group.to_string(), plural.to_string())) {
            Some(CountedObjects::Number(number)) => {
                let number = if is_scoped(quota) { 0 } else { i64::try_from(*number).unwrap_or(i64::MAX) };
                used.insert(name.to_string(), Quantity::new(number, Format::DecimalSI));
            }
            Some(CountedObjects::Objects(..)) => {
                drop(used.insert(name.to_string(), Quantity::new(0, Format::DecimalSI)))
            }
            // The usage is unknown: the previous value is kept.
            None => {
                let said = quota.map("status.used").str(name);
                Quantity::parse(said).into_iter().for_each(|said| drop(used.insert(name.to_string(), said)));
            }
        }
    }
    for source in sources.values() {
        if let CountedObjects::Objects(kind, objects) = source {
            let spoken_of = objects.iter().filter(|object| quota::match_object(quota, *kind, object));
            spoken_of.for_each(|object| add(&mut used, usage(kind, object, now)));
        }
    }
    let is_true = *quota.at("status.hard") == *quota.at("spec.hard") && is_same(quota.at("status.used"), &used);
    (!is_true).then(|| {
        let mut status = tree! { "used" => tree! {} };
        status.set("hard", Tree::Map(quota.map("spec.hard").clone()));
        used.iter().for_each(|(name, amount)| status.child("used").set(name, amount.to_string()));
        status
    })
}

fn is_scoped(quota: &Tree) -> bool {
    !quota.list("spec.scopes").is_empty() || !quota.list("spec.scopeSelector.matchExpressions").is_empty()
}

/// A pod past its grace period is only charged for its object count.
pub(super) fn usage(kind: &Kind, object: &Tree, now: Timestamp) -> Usage {
    let mut usage = quota::compute_usage(kind, object);
    let grace = object.int("metadata.deletionGracePeriodSeconds");
    let deleted = time::parse(object.str("metadata.deletionTimestamp")).ok();
    let is_overdue =
        deleted.zip(grace).is_some_and(|(deleted, grace)| deleted.seconds.saturating_add(grace) < now.seconds);
    if kind.kind == "Pod" && is_overdue {
        usage.retain(|name, _| name.starts_with("count/"));
    }
    usage
}

/// Adds only the names that the quota limits.
fn add(used: &mut Usage, more: Usage) {
    for (name, amount) in more {
        if let Some(sum) = used.get_mut(&name) {
            *sum += &amount;
        }
    }
}

fn is_same(said: &Tree, used: &Usage) -> bool {
    let said = said.as_map();
    said.is_some_and(|said| {
        said.len() == used.len()
            && used.iter().all(|(name, amount)| Quantity::parse(said.str(name)).is_ok_and(|said| said == *amount))
    })
}

#[cfg(test)]
mod tests {
    use api::json::{decode, encode};

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

    fn json(text: &str) -> Tree {
        decode(text.as_bytes()).expect("json")
    }

    fn sources(pods: &[&str]) -> Sources {
        let pods = pods.iter().map(|pod| Arc::new(json(pod))).collect();
        BTreeMap::from([
            (("".to_string(), "pods".to_string()), CountedObjects::Objects(&kinds::core::pod::KIND, pods)),
            (("".to_string(), "secrets".to_string()), CountedObjects::Number(3)),
        ])
    }

    fn check(quota: &str, pods: &[&str], want: &str) {
        let plan = plan(&json(quota), &sources(pods), NOW);
        let used = plan.map(|status| String::from_utf8(encode(status.at("used"), None)).expect("text"));
        assert_eq!(used.as_deref().unwrap_or("true already"), want, "{quota}");
    }

    const SMALL: &str = r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Gi"}}}]}}"#;
    const BEST_EFFORT: &str = r#"{"spec":{"containers":[{"name":"c"}]}}"#;
    const ENDED: &str = r#"{"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Failed"}}"#;
    const OVERDUE: &str = r#"{"metadata":{"deletionTimestamp":"1970-01-01T00:10:00Z","deletionGracePeriodSeconds":30},"spec":{"containers":[{"name":"c"}]}}"#;

    #[test]
    fn computes_usage() {
        let pods = [SMALL, SMALL, BEST_EFFORT, ENDED, OVERDUE];
        let hard = r#"{"pods":"10","count/pods":"10","requests.cpu":"1","memory":"4Gi","secrets":"5"}"#;
        check(
            &format!(r#"{{"spec":{{"hard":{hard}}}}}"#),
            &pods,
            r#"{"count/pods":"5","memory":"2Gi","pods":"3","requests.cpu":"200m","secrets":"3"}"#,
        );
        check(r#"{"spec":{"hard":{"pods":"9"},"scopes":["BestEffort"]}}"#, &pods, r#"{"pods":"1"}"#);
        check(
            r#"{"spec":{"hard":{"pods":"9","secrets":"9"},"scopes":["BestEffort"]}}"#,
            &pods,
            r#"{"pods":"1","secrets":"0"}"#,
        );
    }

    #[test]
    fn a_pod_with_the_longest_grace_period_is_not_overdue() {
        let pod = r#"{"metadata":{"deletionTimestamp":"9999-12-31T23:59:59Z","deletionGracePeriodSeconds":9223372036854775807},"spec":{"containers":[{"name":"c"}]}}"#;
        check(r#"{"spec":{"hard":{"pods":"9"}}}"#, &[pod], r#"{"pods":"1"}"#);
    }

    #[test]
    fn unchanged_status_is_not_written() {
        let quota = |used: &str| {
            format!(r#"{{"spec":{{"hard":{{"cpu":"1"}}}},"status":{{"hard":{{"cpu":"1"}},"used":{{{used}}}}}}}"#)
        };
        check(&quota(r#""cpu":"0.2""#), &[SMALL, SMALL], "true already");
        check(&quota(r#""cpu":"300m""#), &[SMALL, SMALL], r#"{"cpu":"200m"}"#);
        check(&quota(r#""cpu":"200m","pods":"2""#), &[SMALL, SMALL], r#"{"cpu":"200m"}"#);
    }

    #[test]
    fn keeps_usage_of_unserved_resources() {
        let hard = r#"{"count/things.example.com":"9","services":"9"}"#;
        let status = r#"{"used":{"services":"2"}}"#;
        check(&format!(r#"{{"spec":{{"hard":{hard}}},"status":{status}}}"#), &[], r#"{"services":"2"}"#);
    }
}
