//! Renamed node labels.

use api::field::Path;
use api::{Tree, validation};

/// The warning for a deprecated node label.
pub(crate) fn deprecation(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

/// Warnings for the match expressions of a node selector term, or of a label selector for nodes.
pub(crate) fn expression_warnings(term: &Tree, path: &Path<'_>) -> Vec<String> {
    let expressions = path.field("matchExpressions");
    let mut out = Vec::new();
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let key = expression.str("key");
        if let Some(text) = deprecation(key) {
            out.push(format!("{}: {key} is {text}", expressions.index(index).field("key")));
        }
    }
    out
}

/// Like `expression_warnings`, for preferred terms: their values may be invalid.
pub(crate) fn preference_warnings(term: &Tree, path: &Path<'_>) -> Vec<String> {
    let expressions = path.field("matchExpressions");
    let mut out = Vec::new();
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let at = expressions.index(index);
        let key = expression.str("key");
        if let Some(text) = deprecation(key) {
            out.push(format!("{}: {key} is {text}", at.field("key")));
        }
        for (number, value) in expression.list("values").iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            let messages = validation::label_value(value).into_iter();
            out.extend(
                messages.map(|message| format!("{}: {value} is invalid, {message}", at.field("values").index(number))),
            );
        }
    }
    out
}
