//! Random plugin arguments, for the reference and for the plugins.

use api::{Str, Tree, list, tree};

use super::generate::Generator;
use crate::plugins::allocation::Weighted;
use crate::plugins::args::Args;
use crate::plugins::node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
use crate::plugins::node_resources_fit::{NodeResourcesFit, Strategy};
use oracle::Settings;

const GPU: &str = "example.com/gpu";

/// Half of them are the defaults.
pub(super) fn settings(generator: &Generator<'_>) -> Settings {
    if generator.chance(50) {
        return Settings::default();
    }
    let points = || {
        let mut points = vec![(0, generator.below(11) as i64), (100, generator.below(11) as i64)];
        points.insert(1, (1 + generator.below(98) as i64, generator.below(11) as i64));
        points
    };
    let strategy = match generator.below(3) {
        0 => oracle::Strategy::LeastAllocated,
        1 => oracle::Strategy::MostAllocated,
        _ => oracle::Strategy::RequestedToCapacityRatio(points()),
    };
    let weighted = |name: &str| (name.to_string(), 1 + generator.below(5) as i64);
    Settings {
        strategy,
        fit_resources: ["cpu", "memory", GPU].map(weighted).to_vec(),
        ignored_resources: if generator.chance(30) { vec![GPU.to_string()] } else { Vec::new() },
        ignored_resource_groups: if generator.chance(20) { vec!["example.com".to_string()] } else { Vec::new() },
        balanced_resources: ["cpu", "memory", GPU].map(String::from).to_vec(),
        added_affinity: if generator.chance(40) { added_affinity() } else { Tree::Null },
        hard_pod_affinity_weight: generator.below(4) as i64,
        ignore_preferred_terms_of_existing_pods: generator.chance(30),
        default_constraints: generator.chance(50).then(|| vec![default_constraint(generator)]),
    }
}

fn added_affinity() -> Tree {
    let on_disk = tree! { "key" => "disk", "operator" => "In", "values" => list!["ssd"] };
    let in_rack = tree! { "key" => "rack", "operator" => "Exists" };
    let preference = tree! { "matchExpressions" => list![in_rack] };
    tree! {
        "requiredDuringSchedulingIgnoredDuringExecution" =>
            tree! { "nodeSelectorTerms" => list![tree! { "matchExpressions" => list![on_disk] }] },
        "preferredDuringSchedulingIgnoredDuringExecution" => list![tree! { "weight" => 7, "preference" => preference }],
    }
}

fn default_constraint(generator: &Generator<'_>) -> Tree {
    let action = if generator.chance(50) { "DoNotSchedule" } else { "ScheduleAnyway" };
    tree! { "maxSkew" => 1, "topologyKey" => "topology.kubernetes.io/zone", "whenUnsatisfiable" => action }
}

pub(super) fn args(settings: &Settings) -> Args {
    let scaled = |points: &Vec<(i64, i64)>| points.iter().map(|(at, score)| (*at, score * 10)).collect();
    let strategy = match &settings.strategy {
        oracle::Strategy::LeastAllocated => Strategy::LeastAllocated,
        oracle::Strategy::MostAllocated => Strategy::MostAllocated,
        oracle::Strategy::RequestedToCapacityRatio(points) => Strategy::RequestedToCapacityRatio(scaled(points)),
    };
    let weighted = |name: &str, weight: i64| Weighted { name: Str::new(name), weight };
    let texts = |list: &[String]| list.iter().map(|text| Str::new(text)).collect();
    Args {
        fit: NodeResourcesFit {
            strategy,
            resources: settings.fit_resources.iter().map(|(name, weight)| weighted(name, *weight)).collect(),
            ignored: texts(&settings.ignored_resources),
            ignored_groups: texts(&settings.ignored_resource_groups),
        },
        balanced_allocation: NodeResourcesBalancedAllocation {
            resources: settings.balanced_resources.iter().map(|name| weighted(name, 1)).collect(),
        },
        added_affinity: settings.added_affinity.clone(),
        hard_pod_affinity_weight: settings.hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods: settings.ignore_preferred_terms_of_existing_pods,
        default_constraints: settings.default_constraints.clone(),
        ..Args::default()
    }
}
