//! Which objects a quota with scopes applies to.

use super::CountedKind;
use api::Tree;

/// A quota without scopes applies to all objects; a quota with scopes only to pods.
pub fn match_object<'a>(quota: &Tree, kind: impl Into<CountedKind<'a>>, object: &Tree) -> bool {
    let kind = kind.into();
    let scopes = quota.list("spec.scopes").iter().filter_map(Tree::as_str);
    let mut expressions = quota.list("spec.scopeSelector.matchExpressions").iter();
    let is_pod = kind.group.is_empty() && kind.kind == "Pod";
    let mut scopes = scopes.peekable();
    if scopes.peek().is_none() && expressions.len() == 0 {
        return true;
    }
    is_pod && scopes.all(|scope| has_scope(object, scope)) && expressions.all(|expression| matches(object, expression))
}

fn matches(pod: &Tree, expression: &Tree) -> bool {
    let scope = expression.str("scopeName");
    if scope != "PriorityClass" {
        return has_scope(pod, scope);
    }
    let class = pod.str("spec.priorityClassName");
    let named = expression.list("values").iter().any(|value| value.as_str() == Some(class));
    match expression.str("operator") {
        "In" => !class.is_empty() && named,
        "NotIn" => class.is_empty() || !named,
        "Exists" => !class.is_empty(),
        _ => class.is_empty(),
    }
}

fn has_scope(pod: &Tree, scope: &str) -> bool {
    let spec = pod.at("spec");
    match scope {
        "BestEffort" => crate::podspec::qos::class(spec) == "BestEffort",
        "NotBestEffort" => crate::podspec::qos::class(spec) != "BestEffort",
        "Terminating" => spec.int("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0),
        "NotTerminating" => spec.int("activeDeadlineSeconds").is_none(),
        "PriorityClass" => !spec.str("priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(spec.at("affinity")),
        _ => false,
    }
}

fn crosses_namespaces(affinity: &Tree) -> bool {
    let crosses = |term: &Tree| !term.list("namespaces").is_empty() || term.has("namespaceSelector");
    ["podAffinity", "podAntiAffinity"].iter().map(|which| affinity.at(which)).any(|affinity| {
        affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || affinity
                .list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| crosses(term.at("podAffinityTerm")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Tree {
        api::json::decode(text.as_bytes()).expect("json")
    }

    #[test]
    fn scopes_select_pods() {
        let check = |quota: &str, spec: &str, want: bool| {
            let quota = json(&format!(r#"{{"spec":{quota}}}"#));
            let pod = json(&format!(r#"{{"spec":{spec}}}"#));
            assert_eq!(match_object(&quota, &crate::core::pod::KIND, &pod), want, "{quota:?} {spec}");
        };
        let burstable = r#"{"containers":[{"resources":{"requests":{"cpu":"1m"}}}]}"#;
        check("{}", "{}", true);
        check(r#"{"scopes":["BestEffort"]}"#, r#"{"containers":[{"name":"c"}]}"#, true);
        check(r#"{"scopes":["BestEffort"]}"#, burstable, false);
        check(r#"{"scopes":["Terminating"]}"#, r#"{"activeDeadlineSeconds":5}"#, true);
        check(r#"{"scopes":["NotTerminating"]}"#, r#"{"activeDeadlineSeconds":5}"#, false);
        let high = r#"{"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}"#;
        check(high, r#"{"priorityClassName":"high"}"#, true);
        check(high, r#"{"priorityClassName":"low"}"#, false);
    }

    #[test]
    fn other_kinds_have_no_scopes() {
        let quota = json(r#"{"spec":{"scopes":["BestEffort"]}}"#);
        assert!(!match_object(&quota, &crate::core::config_map::KIND, &json("{}")));
    }
}
