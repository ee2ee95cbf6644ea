//! The effect of a failed pod on its job: the first matching rule of `podFailurePolicy` decides.

use api::Tree;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// Counts towards the backoff limit, also without a matching rule.
    Count,
    Ignore,
    FailIndex,
    /// With the message of the job's condition.
    FailJob(String),
}

impl FailureAction {
    /// The action of the matching rule.
    pub(super) fn action(&self) -> &'static str {
        match self {
            FailureAction::Count => "Count",
            FailureAction::Ignore => "Ignore",
            FailureAction::FailIndex => "FailIndex",
            FailureAction::FailJob(_) => "FailJob",
        }
    }

    pub(super) fn counts(&self) -> bool {
        *self != FailureAction::Ignore
    }
}

pub(super) fn failure_action(job: &Tree, pod: &Tree) -> FailureAction {
    matching_action(job, pod).unwrap_or(FailureAction::Count)
}

/// The result of the first matching rule; None if no rule matches.
pub(super) fn matching_action(job: &Tree, pod: &Tree) -> Option<FailureAction> {
    let rules = job.list("spec.podFailurePolicy.rules").iter().enumerate();
    rules.filter_map(|(at, rule)| apply(rule, at, pod)).next()
}

fn apply(rule: &Tree, at: usize, pod: &Tree) -> Option<FailureAction> {
    let action = rule.str("action");
    let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
    let because = if rule.has("onExitCodes") {
        let (container, code) = exited(rule.at("onExitCodes"), pod)?;
        format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
    } else {
        let condition = condition(rule.list("onPodConditions"), pod)?;
        format!("Pod {namespace}/{name} has condition {condition}")
    };
    match action {
        "Ignore" => Some(FailureAction::Ignore),
        "FailIndex" => Some(FailureAction::FailIndex),
        "Count" => Some(FailureAction::Count),
        "FailJob" => Some(FailureAction::FailJob(format!("{because} matching {action} rule at index {at}"))),
        _ => None,
    }
}

/// The first container that exited with a code of the rule.
fn exited<'a>(rule: &Tree, pod: &'a Tree) -> Option<(&'a str, i64)> {
    let wanted = rule.at("containerName").as_str();
    let statuses = pod.list("status.containerStatuses").iter().chain(pod.list("status.initContainerStatuses"));
    let ended = statuses.filter(|status| wanted.is_none_or(|name| name == status.str("name")));
    let mut codes = ended.filter_map(|status| Some((status.str("name"), status.int("state.terminated.exitCode")?)));
    codes.find(|(_, code)| *code != 0 && matches_exit_code(rule, *code))
}

fn matches_exit_code(rule: &Tree, code: i64) -> bool {
    let listed = rule.list("values").iter().any(|value| value.as_int() == Some(code));
    match rule.str("operator") {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

fn condition<'a>(patterns: &[Tree], pod: &'a Tree) -> Option<&'a str> {
    let matches = |condition: &Tree, pattern: &Tree| {
        condition.str("type") == pattern.str("type") && condition.str("status") == pattern.str("status")
    };
    let mut conditions = pod.list("status.conditions").iter();
    conditions.find(|condition| patterns.iter().any(|pattern| matches(condition, pattern))).map(|c| c.str("type"))
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    fn check(rules: &str, status: &str, want: FailureAction) {
        let job = decode(format!(r#"{{"spec":{{"podFailurePolicy":{{"rules":[{rules}]}}}}}}"#).as_bytes());
        let pod = decode(format!(r#"{{"metadata":{{"namespace":"n","name":"p"}},"status":{{{status}}}}}"#).as_bytes());
        assert_eq!(failure_action(&job.expect("a job"), &pod.expect("a pod")), want, "{rules} {status}");
    }

    #[test]
    fn first_matching_rule_decides() {
        let code = |code: i64| {
            format!(r#""containerStatuses":[{{"name":"c","state":{{"terminated":{{"exitCode":{code}}}}}}}]"#)
        };
        let fail = r#"{"action":"FailJob","onExitCodes":{"operator":"In","values":[3,4]}}"#;
        let ignore = r#"{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}"#;
        let others = r#"{"action":"FailIndex","onExitCodes":{"containerName":"c","operator":"NotIn","values":[1]}}"#;
        let rules = [fail, ignore, others].join(",");
        let failed = "Container c for pod n/p failed with exit code 3 matching FailJob rule at index 0";
        check(&rules, &code(3), FailureAction::FailJob(failed.to_string()));
        check(&rules, &code(7), FailureAction::FailIndex);
        check(&rules, &code(1), FailureAction::Count);
        check(&rules, &code(0), FailureAction::Count);
        let disrupted = r#""conditions":[{"type":"DisruptionTarget","status":"True"}]"#;
        check(&rules, &format!("{},{disrupted}", code(7)), FailureAction::Ignore);
        check("", &code(3), FailureAction::Count);
        let on_condition = r#"{"action":"FailJob","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}"#;
        let failed = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0";
        check(on_condition, disrupted, FailureAction::FailJob(failed.to_string()));
    }

    #[test]
    fn rules_can_name_a_container() {
        let rule = r#"{"action":"Ignore","onExitCodes":{"containerName":"main","operator":"In","values":[9]}}"#;
        let ended = |name: &str| format!(r#"{{"name":"{name}","state":{{"terminated":{{"exitCode":9}}}}}}"#);
        check(rule, &format!(r#""containerStatuses":[{}]"#, ended("side")), FailureAction::Count);
        check(rule, &format!(r#""initContainerStatuses":[{}]"#, ended("main")), FailureAction::Ignore);
        check(rule, r#""containerStatuses":[{"name":"main","state":{"running":{}}}]"#, FailureAction::Count);
    }
}
