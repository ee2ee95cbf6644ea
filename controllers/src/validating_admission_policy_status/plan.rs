//! When the types of a policy are checked, and the status that results.

use api::{Tree, tree};
use kinds::check_types;

/// Whether the policy has changed since it was checked.
pub(super) fn is_due(policy: &Tree) -> bool {
    policy.int("metadata.generation").unwrap_or(0) > policy.int("status.observedGeneration").unwrap_or(0)
}

/// The apply configuration of a policy's status.
pub(super) fn describe(policy: &Tree, definitions: &[Tree]) -> Tree {
    let warning =
        |warning: kinds::ExpressionWarning| tree! { "fieldRef" => warning.field, "warning" => warning.warning };
    let warnings: Vec<Tree> = check_types(policy, definitions).into_iter().map(warning).collect();
    let mut checking = tree! {};
    if !warnings.is_empty() {
        checking.set("expressionWarnings", Tree::List(warnings));
    }
    tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1",
        "kind" => "ValidatingAdmissionPolicy",
        "metadata" => tree! { "name" => policy.str("metadata.name") },
        "status" => tree! {
            "observedGeneration" => policy.int("metadata.generation").unwrap_or(0),
            "typeChecking" => checking,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(generation: i64, observed: i64, expression: &str) -> Tree {
        let text = format!(
            r#"{{"metadata":{{"name":"p","generation":{generation}}},"status":{{"observedGeneration":{observed}}},"spec":{{
                "matchConstraints":{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}}]}},
                "validations":[{{"expression":"{expression}"}}]}}}}"#
        );
        api::json::decode(text.as_bytes()).expect("the test's own JSON")
    }

    #[test]
    fn a_policy_is_checked_once_for_each_generation() {
        assert!(is_due(&policy(1, 0, "true")));
        assert!(!is_due(&policy(1, 1, "true")));
        assert!(is_due(&policy(2, 1, "true")));
    }

    #[test]
    fn the_status_has_the_warnings() {
        let check = |expression: &str, want: &str| {
            let status = describe(&policy(2, 1, expression), &[]).at("status").clone();
            assert_eq!(status.int("observedGeneration"), Some(2));
            let warnings = status.list("typeChecking.expressionWarnings");
            let got = warnings.first().map_or("", |warning| warning.str("warning"));
            assert!(got.contains(want) && got.is_empty() == want.is_empty(), "{got}");
            assert!(status.has("typeChecking"), "{status:?}");
        };
        check("object.data.a == 'b'", "");
        check("object.data.a == 1", "/v1, Kind=ConfigMap: ERROR: <input>:1:15: found no matching overload");
    }
}
