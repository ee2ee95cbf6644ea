//! Defaults of an autoscaler.

use api::{Tree, list, tree};

const CPU_PERCENT: i64 = 80;

pub(super) fn set_defaults(autoscaler: &mut Tree) {
    let spec = autoscaler.child("spec");
    spec.set_default("minReplicas", 1);
    if spec.list("metrics").is_empty() {
        spec.set("metrics", default_metrics());
    }
    if spec.has("behavior") {
        let behavior = spec.child("behavior");
        complete(behavior.child("scaleUp"), scale_up());
        complete(behavior.child("scaleDown"), scale_down());
    }
}

/// 80 % of the pods' CPU requests.
pub(in crate::autoscaling) fn default_metrics() -> Tree {
    let target = tree! { "type" => "Utilization", "averageUtilization" => CPU_PERCENT };
    list![tree! { "type" => "Resource", "resource" => tree! { "name" => "cpu", "target" => target } }]
}

fn policy(kind: &str, value: i64) -> Tree {
    tree! { "type" => kind, "value" => value, "periodSeconds" => 15 }
}

fn scale_up() -> Tree {
    tree! {
        "stabilizationWindowSeconds" => 0,
        "selectPolicy" => "Max",
        "policies" => list![policy("Pods", 4), policy("Percent", 100)],
    }
}

/// The default stabilization window is a flag of the controller, so it has no default here.
fn scale_down() -> Tree {
    tree! { "selectPolicy" => "Max", "policies" => list![policy("Percent", 100)] }
}

fn complete(rules: &mut Tree, defaults: Tree) {
    for (key, value) in defaults.as_map().into_iter().flat_map(api::Map::iter) {
        rules.set_default(key, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behavior_defaults() {
        let down = tree! { "stabilizationWindowSeconds" => 60 };
        let mut autoscaler = tree! { "spec" => tree! { "behavior" => tree! { "scaleDown" => down } } };
        set_defaults(&mut autoscaler);
        let mut want = scale_down();
        want.set("stabilizationWindowSeconds", 60);
        assert_eq!(autoscaler.at("spec.behavior.scaleDown"), &want);
        assert_eq!(autoscaler.at("spec.behavior.scaleUp"), &scale_up());
        assert_eq!(autoscaler.int("spec.minReplicas"), Some(1));
        assert_eq!(autoscaler.at("spec.metrics"), &default_metrics());
    }
}
