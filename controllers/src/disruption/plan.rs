//! Computes how many pods of a budget may be disrupted now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::time::{self, Timestamp};
use api::{Tree, list, tree};
use thiserror::Error;

use crate::support::clock::until;
use crate::support::pods::is_ready;

/// How long a granted eviction is expected to end in a deletion, and a DisruptionTarget condition to be valid.
const TIMEOUT_SECONDS: i64 = 120;

/// Why the number of expected pods cannot be computed.
#[derive(Debug, Clone, PartialEq, Error)]
pub(super) enum Error {
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
    #[error("{0} does not implement the scale subresource")]
    NotScalable(String),
    #[error("invalid value for IntOrString: {0:?}")]
    InvalidValue(Tree),
}

/// The total scale of the controllers of a budget's pods.
pub(super) type Scale = Result<i64, Error>;

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub status: Tree,
    pub again: Option<Duration>,
    /// Pods that were evicted but not deleted in time.
    pub not_deleted: Vec<Arc<Tree>>,
}

/// Whether the expected pod count depends on the scale of the pods' controllers.
pub(crate) fn needs_scale(budget: &Tree) -> bool {
    let spec = budget.at("spec");
    spec.has("maxUnavailable") || spec.at("minAvailable").as_str().is_some()
}

/// The message about pods without a controller where the scale is required.
pub(super) fn unmanaged(budget: &Tree) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status \
         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
         please set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector_text(budget.at("spec.selector"))
    )
}

/// A selector as upstream's messages print it.
fn selector_text(selector: &Tree) -> String {
    let mut labels: Vec<(&str, &Tree)> = selector.map("matchLabels").iter().collect();
    labels.sort_by_key(|(key, _)| *key);
    let label = |(key, value): &(&str, &Tree)| format!("{key}: {},", value.as_str().unwrap_or_default());
    let expression = |one: &Tree| {
        let values: Vec<&str> = one.list("values").iter().filter_map(Tree::as_str).collect();
        let (key, operator) = (one.str("key"), one.str("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let labels: String = labels.iter().map(label).collect();
    let expressions: String = selector.list("matchExpressions").iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// `scale` is only called if it is needed.
pub(super) fn plan(
    budget: &Tree,
    pods: &[Arc<Tree>],
    scale: impl FnOnce() -> Scale,
    now: Timestamp,
) -> Result<Plan, Error> {
    let (expected, desired) = expectations(budget, pods.len() as i64, scale)?;
    let mut status = budget.at("status").clone();
    let (disrupted, again, not_deleted) = disrupted(budget.at("status"), pods, now);
    let is_healthy = |pod: &&Arc<Tree>| {
        let name = pod.str("metadata.name");
        !pod.at("metadata").has("deletionTimestamp") && !disrupted.contains_key(name) && is_ready(pod)
    };
    let healthy = pods.iter().filter(is_healthy).count() as i64;
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    status.set("currentHealthy", healthy);
    status.set("desiredHealthy", desired);
    status.set("expectedPods", expected);
    status.set("disruptionsAllowed", allowed);
    if disrupted.is_empty() {
        status.remove("disruptedPods");
    } else {
        let mut map = tree! {};
        disrupted.iter().for_each(|(name, time)| map.set(name, *time));
        status.set("disruptedPods", map);
    }
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    observe(&mut status, budget, allowed > 0, (reason, ""), now);
    Ok(Plan { status, again, not_deleted })
}

/// If the computation fails, no disruption is allowed.
pub(super) fn fail(budget: &Tree, why: &str, now: Timestamp) -> Tree {
    let mut status = budget.at("status").clone();
    status.set("disruptionsAllowed", 0);
    observe(&mut status, budget, false, ("SyncFailed", why), now);
    status
}

/// Sets the condition and the observed generation.
fn observe(status: &mut Tree, budget: &Tree, allowed: bool, (reason, message): (&str, &str), now: Timestamp) {
    let generation = budget.int("metadata.generation").unwrap_or(0);
    let state = if allowed { "True" } else { "False" };
    let old = status.list("conditions").iter().find(|condition| condition.str("type") == "DisruptionAllowed");
    let since = old.filter(|old| old.str("status") == state).map(|old| old.str("lastTransitionTime"));
    let condition = tree! {
        "type" => "DisruptionAllowed",
        "status" => state,
        "observedGeneration" => generation,
        "lastTransitionTime" => since.map_or_else(|| time::format_seconds(now.seconds), api::Str::new),
        "reason" => reason,
        "message" => message,
    };
    let at = status.list("conditions").iter().position(|condition| condition.str("type") == "DisruptionAllowed");
    match at {
        Some(at) => status.list_mut("conditions")[at] = condition,
        None => status.list_entry("conditions").push(condition),
    }
    status.set("observedGeneration", generation);
}

/// The expected pod count, and the desired number of healthy pods.
fn expectations(budget: &Tree, count: i64, scale: impl FnOnce() -> Scale) -> Result<(i64, i64), Error> {
    let spec = budget.at("spec");
    if spec.has("maxUnavailable") {
        let expected = scale()?;
        return Ok((expected, (expected - scaled(spec.at("maxUnavailable"), expected)?).max(0)));
    }
    match spec.at("minAvailable") {
        Tree::Int(desired) => Ok((count, *desired)),
        Tree::Null => Ok((0, 0)),
        share => {
            let expected = scale()?;
            Ok((expected, scaled(share, expected)?))
        }
    }
}

/// A number, or a percentage of `whole`, rounded up.
fn scaled(value: &Tree, whole: i64) -> Result<i64, Error> {
    if let Some(number) = value.as_int() {
        return Ok(number);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    let percent = percent.ok_or_else(|| Error::InvalidValue(value.clone()))?;
    Ok((percent * whole + 99).div_euclid(100))
}

type DisruptedPods<'a> = (BTreeMap<&'a str, &'a str>, Option<Duration>, Vec<Arc<Tree>>);

/// Granted evictions whose pods still exist.
fn disrupted<'a>(status: &'a Tree, pods: &[Arc<Tree>], now: Timestamp) -> DisruptedPods<'a> {
    let mut kept = BTreeMap::new();
    let mut again: Option<Duration> = None;
    let mut not_deleted = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.at("metadata").has("deletionTimestamp")) {
        let Some((name, granted)) =
            status.map("disruptedPods").iter().find(|(name, _)| *name == pod.str("metadata.name"))
        else {
            continue;
        };
        let granted = granted.as_str().unwrap_or("");
        let due = time::parse(granted).map_or(0, |time| time.seconds) + TIMEOUT_SECONDS;
        match until(now, due) {
            None => not_deleted.push(pod.clone()),
            Some(left) => {
                again = Some(again.map_or(left, |again| again.min(left)));
                kept.insert(name, granted);
            }
        }
    }
    (kept, again, not_deleted)
}

/// Whether a DisruptionTarget condition is stale.
#[derive(Debug, PartialEq)]
pub(super) enum StaleCondition {
    No,
    Wait(Duration),
    /// The condition is stale: the patch that clears it.
    Patch(Tree),
}

/// Conditions set by a kubelet never become stale: its eviction may last long.
pub(super) fn stale(pod: &Tree, now: Timestamp) -> StaleCondition {
    let ended = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    let said = pod.list("status.conditions").iter().find(|condition| {
        condition.str("type") == "DisruptionTarget"
            && condition.str("status") == "True"
            && condition.str("reason") != "TerminationByKubelet"
    });
    let Some(condition) = said.filter(|_| !ended && !pod.at("metadata").has("deletionTimestamp")) else {
        return StaleCondition::No;
    };
    let since = time::parse(condition.str("lastTransitionTime")).map_or(0, |time| time.seconds);
    if let Some(left) = until(now, since + TIMEOUT_SECONDS) {
        return StaleCondition::Wait(left);
    }
    let condition = tree! {
        "type" => "DisruptionTarget",
        "status" => "False",
        "reason" => Tree::Null,
        "message" => Tree::Null,
        "lastTransitionTime" => time::format_seconds(now.seconds),
    };
    let metadata = tree! { "uid" => pod.str("metadata.uid") };
    StaleCondition::Patch(tree! { "metadata" => metadata, "status" => tree! { "conditions" => list![condition] } })
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

    fn budget(spec: &str, status: &str) -> Tree {
        let json = format!(r#"{{"metadata":{{"generation":3}},"spec":{{{spec}}},"status":{{{status}}}}}"#);
        decode(json.as_bytes()).expect("a budget")
    }

    fn pod(name: &str, ready: bool) -> Arc<Tree> {
        let state = if ready { "True" } else { "False" };
        let status = format!(r#"{{"conditions":[{{"type":"Ready","status":"{state}"}}]}}"#);
        Arc::new(decode(format!(r#"{{"metadata":{{"name":"{name}"}},"status":{status}}}"#).as_bytes()).expect("a pod"))
    }

    /// Expected, desired, healthy, allowed.
    fn check(spec: &str, pods: &[Arc<Tree>], scale: i64, want: [i64; 4]) {
        let plan = plan(&budget(spec, ""), pods, || Ok(scale), NOW).expect("a plan");
        let of = |field: &str| plan.status.int(field).expect("a number");
        let found = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"].map(of);
        assert_eq!(found, want, "{spec}");
        let condition = &plan.status.list("conditions")[0];
        let reason = if want[3] > 0 { "SufficientPods" } else { "InsufficientPods" };
        assert_eq!((condition.str("reason"), condition.int("observedGeneration")), (reason, Some(3)));
    }

    #[test]
    fn computes_budget_status() {
        let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
        check(r#""minAvailable":1"#, &pods, 0, [4, 1, 3, 2]);
        check(r#""minAvailable":1"#, &pods[3..], 0, [1, 1, 0, 0]);
        check(r#""minAvailable":"50%""#, &pods, 5, [5, 3, 3, 0]);
        check(r#""maxUnavailable":1"#, &pods, 4, [4, 3, 3, 0]);
        check(r#""maxUnavailable":"30%""#, &pods, 4, [4, 2, 3, 1]);
        check(r#""maxUnavailable":9"#, &pods, 4, [4, 0, 3, 3]);
        check(r#""minAvailable":0"#, &[], 0, [0, 0, 0, 0]);
    }

    #[test]
    fn evicted_pods_are_unhealthy_until_the_timeout() {
        let status =
            r#""disruptedPods":{"a":"1970-01-01T00:16:00Z","b":"1970-01-01T00:10:00Z","gone":"1970-01-01T00:16:00Z"}"#;
        let pods = [pod("a", true), pod("b", true)];
        let plan = plan(&budget(r#""minAvailable":0"#, status), &pods, || Ok(0), NOW).expect("a plan");
        assert_eq!(plan.status.int("currentHealthy"), Some(1));
        assert_eq!(plan.status.map("disruptedPods").keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(plan.again, Some(Duration::from_secs(80)));
        assert_eq!(plan.not_deleted.len(), 1);
    }

    #[test]
    fn unchanged_status_is_equal() {
        let mut budget = budget(r#""minAvailable":1"#, "");
        let first = plan(&budget, &[pod("a", true)], || Ok(0), NOW).expect("a plan").status;
        budget.set("status", first.clone());
        let later = Timestamp { seconds: 2000, nanos: 0 };
        assert_eq!(plan(&budget, &[pod("a", true)], || Ok(0), later).expect("a plan").status, first);
        let failed = fail(&budget, "no idea", later);
        assert_eq!(failed.list("conditions")[0].str("reason"), "SyncFailed");
        assert_eq!(failed.int("disruptionsAllowed"), Some(0));
    }

    #[test]
    fn fails_if_the_scale_is_unknown() {
        let found = plan(&budget(r#""maxUnavailable":1"#, ""), &[], || Err(Error::NoController("a".to_string())), NOW);
        assert_eq!(found, Err(Error::NoController("a".to_string())));
        assert!(needs_scale(&budget(r#""minAvailable":"5%""#, "")) && !needs_scale(&budget(r#""minAvailable":5"#, "")));
    }

    #[test]
    fn clears_stale_disruption_targets() {
        let check = |pod: &str, want: &str| {
            let condition = r#""type":"DisruptionTarget","status":"True""#;
            let json = pod.replace("TARGET", condition);
            let found = match stale(&decode(json.as_bytes()).expect("a pod"), NOW) {
                StaleCondition::No => "no",
                StaleCondition::Wait(left) if left == Duration::from_secs(20) => "wait",
                StaleCondition::Wait(_) => "another wait",
                StaleCondition::Patch(_) => "patch",
            };
            assert_eq!(found, want, "{json}");
        };
        let since = |minute: &str| format!(r#""lastTransitionTime":"1970-01-01T00:{minute}Z""#);
        check(&format!(r#"{{"status":{{"conditions":[{{TARGET,{}}}]}}}}"#, since("15:00")), "wait");
        check(&format!(r#"{{"status":{{"conditions":[{{TARGET,{}}}]}}}}"#, since("14:00")), "patch");
        check(&format!(r#"{{"status":{{"phase":"Failed","conditions":[{{TARGET,{}}}]}}}}"#, since("14:00")), "no");
        let kubelet = r#","reason":"TerminationByKubelet""#;
        check(&format!(r#"{{"status":{{"conditions":[{{TARGET{kubelet},{}}}]}}}}"#, since("14:00")), "no");
        check(r#"{"status":{}}"#, "no");
    }

    #[test]
    fn prints_selectors_like_upstream() {
        let spec = r#""selector":{"matchLabels":{"b":"2","a":"1"},
            "matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}"#;
        let text = unmanaged(&budget(spec, ""));
        let want = "(selector: &LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:\
                    []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},})";
        assert!(text.contains(want), "{text}");
    }
}
