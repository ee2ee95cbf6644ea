//! The eviction subresource of pods: whether budgets allow the eviction. Pure: the server finds the budgets, executes
//! the decision, and retries on conflicts.

use api::selector::Selector;
use api::status::{Cause, Status};
use api::{Tree, time, tree};

use super::conditions;

/// The maximum number of evictions not yet confirmed by the controller.
const MAX_DISRUPTED_PODS: usize = 2000;

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

const TWO_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// The decision about an eviction.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Delete the pod. With `as_read` only the version of the decision: a pod that has become ready since counts for
    /// its budget.
    Delete {
        as_read: bool,
    },
    /// Update this budget's status, unless it is a dry run, then delete the pod.
    Spend {
        budget: Tree,
    },
    Refuse(Box<Status>),
}

/// The budgets in the pod's namespace that select it.
pub fn matching<'a>(pod: &Tree, budgets: &'a [Tree]) -> Vec<&'a Tree> {
    let labels = pod.map("metadata.labels");
    let selects = |budget: &&Tree| {
        Selector::from_object(budget.at("spec.selector"))
            .is_ok_and(|selector| !selector.is_everything() && selector.matches_map(labels))
    };
    budgets.iter().filter(selects).collect()
}

/// Decides from the pod and the budgets that select it; `now` is in seconds since the Unix epoch.
pub fn decide(pod: &Tree, budgets: &[&Tree], now: i64) -> Decision {
    if let Some(as_read) = ignores_budgets(pod) {
        return Decision::Delete { as_read };
    }
    match budgets {
        [] => Decision::Delete { as_read: false },
        [budget] => decide_by_budget(pod, budget, now),
        _ => Decision::Refuse(Box::new(Status::new(500, "", TWO_BUDGETS))),
    }
}

/// Evicting a finished pod disrupts nothing. A pending pod may start at any time.
fn ignores_budgets(pod: &Tree) -> Option<bool> {
    let ended = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    if ended || !pod.str("metadata.deletionTimestamp").is_empty() {
        return Some(false);
    }
    (pod.str("status.phase") == "Pending").then_some(true)
}

fn decide_by_budget(pod: &Tree, budget: &Tree, now: i64) -> Decision {
    let number = |key: &str| budget.at("status").int(key).unwrap_or(0);
    if !conditions::is_true(pod, "Ready") {
        let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
        let always = budget.str("spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if always || (current >= desired && desired > 0) {
            return Decision::Delete { as_read: true };
        }
    }
    match spend(budget, pod.str("metadata.name"), now) {
        Ok(budget) => Decision::Spend { budget },
        Err(status) => Decision::Refuse(status),
    }
}

/// Subtracts one allowed disruption from a budget.
fn spend(budget: &Tree, pod: &str, now: i64) -> Result<Tree, Box<Status>> {
    let name = budget.str("metadata.name");
    let status = budget.at("status");
    let number = |key: &str| status.int(key).unwrap_or(0);
    if number("observedGeneration") < budget.int("metadata.generation").unwrap_or(0) {
        return Err(Box::new(not_yet(name)));
    }
    let forbidden = |why: &str| Err(Box::new(Status::forbidden("policy", "poddisruptionbudget", name, why)));
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status.map("disruptedPods").len() > MAX_DISRUPTED_PODS {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(Box::new(spent(budget, name)));
    }
    let mut budget = budget.clone();
    let status = budget.child("status");
    status.set("disruptionsAllowed", allowed - 1);
    status.child("disruptedPods").set(pod, time::format_seconds(now));
    if allowed == 1 {
        note_insufficient(status, now);
    }
    Ok(budget)
}

/// The controller has not processed the budget's latest version. Also returned if the pod has changed since the
/// decision.
pub(crate) fn not_yet(budget: &str) -> Status {
    with_cause(10, format!("The disruption budget {budget} is still being processed by the server."))
}

fn spent(budget: &Tree, name: &str) -> Status {
    let status = budget.at("status");
    let number = |key: &str| status.int(key).unwrap_or(0);
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let failed = status.list("conditions").iter().find(|condition| {
        condition.str("type") == "DisruptionAllowed"
            && condition.str("status") == "False"
            && condition.str("reason") == "SyncFailed"
    });
    let text = match failed {
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            condition.str("message")
        ),
        None if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    with_cause(0, text)
}

fn with_cause(retry_after_seconds: u32, message: String) -> Status {
    let mut status = Status::too_many_requests(VIOLATES, retry_after_seconds);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: "DisruptionBudget".to_string(), message, field: String::new() });
    }
    status
}

fn note_insufficient(status: &mut Tree, now: i64) {
    let mut condition = tree! {
        "type" => "DisruptionAllowed",
        "status" => "False",
        "reason" => "InsufficientPods",
        "message" => "",
        "lastTransitionTime" => time::format_seconds(now),
    };
    if let Some(generation) = status.int("observedGeneration").filter(|generation| *generation != 0) {
        condition.set("observedGeneration", generation);
    }
    let conditions = status.list_entry("conditions");
    match conditions.iter_mut().find(|old| old.str("type") == "DisruptionAllowed") {
        Some(old) => {
            if old.str("status") == "False" {
                condition.set("lastTransitionTime", old.at("lastTransitionTime").clone());
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

/// Sets the DisruptionTarget condition; written before a pod that is deleted gracefully.
pub fn mark(pod: &mut Tree, now: i64) {
    conditions::set(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting", now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    fn pod(phase: &str, ready: &str) -> Tree {
        tree! {
            "metadata" => tree! { "name" => "p", "labels" => tree! { "a" => "b" } },
            "status" => tree! { "phase" => phase, "conditions" => list![tree! { "type" => "Ready", "status" => ready }] },
        }
    }

    fn budget(observed: i64, allowed: i64, current: i64, desired: i64) -> Tree {
        tree! {
            "metadata" => tree! { "name" => "b", "generation" => 1 },
            "spec" => tree! { "selector" => tree! { "matchLabels" => tree! { "a" => "b" } } },
            "status" => tree! {
                "observedGeneration" => observed,
                "disruptionsAllowed" => allowed,
                "currentHealthy" => current,
                "desiredHealthy" => desired,
            },
        }
    }

    fn refusal(decision: Decision) -> String {
        match decision {
            Decision::Refuse(status) => {
                let cause = status.details.and_then(|details| details.causes.into_iter().next());
                cause.map_or(status.message, |cause| cause.message)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn finished_pods_need_no_budget() {
        let none = budget(1, 0, 1, 1);
        assert_eq!(decide(&pod("Pending", "False"), &[&none], 0), Decision::Delete { as_read: true });
        assert_eq!(decide(&pod("Failed", "False"), &[&none], 0), Decision::Delete { as_read: false });
        assert_eq!(decide(&pod("Running", "True"), &[], 0), Decision::Delete { as_read: false });
        let enough = budget(1, 0, 1, 1);
        assert_eq!(decide(&pod("Running", "False"), &[&enough], 0), Decision::Delete { as_read: true });
    }

    #[test]
    fn a_budget_without_disruptions_refuses() {
        let ready = pod("Running", "True");
        let check = |budget: Tree, text: &str| assert_eq!(refusal(decide(&ready, &[&budget], 0)), text);
        check(budget(0, 1, 0, 0), "The disruption budget b is still being processed by the server.");
        check(budget(1, 0, 1, 1), "The disruption budget b needs 1 healthy pods and has 1 currently");
        check(budget(1, 0, 2, 1), "The disruption budget b does not allow evicting pods currently");
        let two = budget(1, 1, 2, 1);
        assert!(refusal(decide(&ready, &[&two, &two], 0)).starts_with("This pod has more than one"));
    }

    #[test]
    fn eviction_spends_the_budget() {
        let before = budget(1, 1, 2, 1);
        let Decision::Spend { budget } = decide(&pod("Running", "True"), &[&before], 0) else { panic!("refused") };
        assert_eq!(budget.int("status.disruptionsAllowed"), Some(0));
        assert_eq!(budget.str("status.disruptedPods.p"), "1970-01-01T00:00:00Z");
        assert_eq!(budget.list("status.conditions")[0].str("reason"), "InsufficientPods");
    }

    #[test]
    fn budgets_select_by_labels() {
        let other = tree! { "spec" => tree! { "selector" => tree! {} } };
        let budgets = [budget(1, 1, 1, 1), other, tree! {}];
        assert_eq!(matching(&pod("Running", "True"), &budgets).len(), 1);
    }
}
