//! The row of `kubectl get hpa`.

use api::Tree;

use crate::cells;

const UNKNOWN: &str = "<unknown>";

pub(in crate::autoscaling) fn cells(autoscaler: &Tree, now: i64) -> Vec<Tree> {
    let target = autoscaler.at("spec.scaleTargetRef");
    let min = autoscaler.int("spec.minReplicas").map_or("<unset>".to_string(), |number| number.to_string());
    vec![
        cells::name(autoscaler),
        Tree::from(format!("{}/{}", target.str("kind"), target.str("name"))),
        Tree::from(metrics(autoscaler.list("spec.metrics"), autoscaler.list("status.currentMetrics"))),
        Tree::from(min),
        Tree::from(autoscaler.int("spec.maxReplicas").unwrap_or(0)),
        Tree::from(autoscaler.int("status.currentReplicas").unwrap_or(0)),
        cells::age(autoscaler, now),
    ]
}

/// Current value and target of the first two metrics, and the number of others.
fn metrics(specs: &[Tree], statuses: &[Tree]) -> String {
    const SHOWN: usize = 2;
    if specs.is_empty() {
        return "<none>".to_string();
    }
    let one = |(index, spec): (usize, &Tree)| metric(spec, statuses.get(index).unwrap_or(&Tree::Null));
    let list: Vec<String> = specs.iter().take(SHOWN).enumerate().map(one).collect();
    match specs.len() - list.len() {
        0 => list.join(", "),
        more => format!("{} + {more} more...", list.join(", ")),
    }
}

fn metric(spec: &Tree, status: &Tree) -> String {
    match spec.str("type") {
        "External" => from_outside(spec.at("external"), status.at("external")),
        "Object" => from_outside(spec.at("object"), status.at("object")),
        "Pods" => {
            let current = quantity(status.at("pods.current"), "averageValue");
            format!("{current}/{}", spec.str("pods.target.averageValue"))
        }
        "Resource" => resource(spec.at("resource"), status.at("resource")),
        "ContainerResource" => resource(spec.at("containerResource"), status.at("containerResource")),
        _ => "<unknown type>".to_string(),
    }
}

fn from_outside(spec: &Tree, status: &Tree) -> String {
    if spec.at("target").has("averageValue") {
        let current = quantity(status.at("current"), "averageValue");
        return format!("{current}/{} (avg)", spec.str("target.averageValue"));
    }
    format!("{}/{}", quantity(status.at("current"), "value"), spec.str("target.value"))
}

fn resource(spec: &Tree, status: &Tree) -> String {
    let name = spec.str("name");
    if spec.at("target").has("averageValue") {
        let current = quantity(status.at("current"), "averageValue");
        return format!("{name}: {current}/{}", spec.str("target.averageValue"));
    }
    let percent = |tree: &Tree, other: &str| {
        tree.int("averageUtilization").map_or(other.to_string(), |percent| format!("{percent}%"))
    };
    format!("{name}: {}/{}", percent(status.at("current"), UNKNOWN), percent(spec.at("target"), "<auto>"))
}

fn quantity<'a>(current: &'a Tree, key: &str) -> &'a str {
    current.at(key).as_str().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn prints_two_metrics() {
        let cpu = tree! { "name" => "cpu", "target" => tree! { "averageUtilization" => 60 } };
        let pods = tree! { "target" => tree! { "averageValue" => "100" } };
        let specs = list![
            tree! { "type" => "Resource", "resource" => cpu },
            tree! { "type" => "Pods", "pods" => pods },
            tree! { "type" => "X" },
        ];
        let current = tree! { "current" => tree! { "averageUtilization" => 7 } };
        let statuses = list![tree! { "type" => "Resource", "resource" => current }];
        let text = metrics(specs.as_list().expect("a list"), statuses.as_list().expect("a list"));
        assert_eq!(text, "cpu: 7%/60%, <unknown>/100 + 1 more...");
    }
}
