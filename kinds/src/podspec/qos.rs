//! The QoS class of a pod.

use api::Tree;
use api::quantity::Quantity;

use super::resources::{aggregate::ResourceList, read};

const COMPUTE: &[&str] = &["cpu", "memory"];

/// Guaranteed, Burstable or BestEffort.
pub fn class(spec: &Tree) -> &'static str {
    if let Some(resources) = spec.get("resources").filter(|resources| has_compute(resources)) {
        return class_of_resources(&[resources], is_guaranteed(resources));
    }
    let containers: Vec<&Tree> = spec
        .list("containers")
        .iter()
        .chain(spec.list("initContainers"))
        .map(|container| container.at("resources"))
        .collect();
    let guaranteed =
        containers.iter().all(|resources| COMPUTE.iter().all(|name| amount(resources, "limits", name).is_some()));
    class_of_resources(&containers, guaranteed)
}

fn has_compute(resources: &Tree) -> bool {
    ["limits", "requests"].iter().any(|list| COMPUTE.iter().any(|name| resources.map(list).contains(name)))
}

fn is_guaranteed(resources: &Tree) -> bool {
    COMPUTE.iter().all(|name| amount(resources, "limits", name).is_some())
}

/// A nonzero amount.
fn amount(resources: &Tree, list: &str, name: &str) -> Option<Quantity> {
    let quantity = read(resources.map(list).get(name)?);
    (!quantity.is_zero() && !quantity.is_negative()).then_some(quantity)
}

fn class_of_resources(resources: &[&Tree], all_limited: bool) -> &'static str {
    let sum = |list: &str| {
        let mut sum = ResourceList::new();
        for resources in resources {
            for name in COMPUTE {
                if let Some(quantity) = amount(resources, list, name) {
                    *sum.entry(api::Str::const_new(name)).or_default() += &quantity;
                }
            }
        }
        sum
    };
    let (requests, limits) = (sum("requests"), sum("limits"));
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal = requests.iter().all(|(name, request)| limits.get(name) == Some(request));
    if all_limited && equal && requests.len() == limits.len() { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn class_follows_requests_and_limits() {
        let check = |resources: Tree, expected: &str| {
            let spec = tree! { "containers" => list![tree! { "resources" => resources }] };
            assert_eq!(class(&spec), expected, "{spec:?}");
        };
        let both = || tree! { "cpu" => "1", "memory" => "1Gi" };
        check(tree! {}, "BestEffort");
        check(tree! { "requests" => tree! { "cpu" => "0" } }, "BestEffort");
        check(tree! { "requests" => tree! { "ephemeral-storage" => "1Gi" } }, "BestEffort");
        check(tree! { "requests" => tree! { "cpu" => "1" } }, "Burstable");
        check(tree! { "requests" => both(), "limits" => both() }, "Guaranteed");
        check(tree! { "requests" => tree! { "cpu" => "500m", "memory" => "1Gi" }, "limits" => both() }, "Burstable");
    }
}
