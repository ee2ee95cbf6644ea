//! NodeResourcesFit and NodeResourcesBalancedAllocation.

use api::Tree;

use super::requests::{Amounts, allocatable, requests, requests_nonzero, used, used_nonzero};
use super::{Case, MAX_SCORE, Strategy, Verdict};

pub(crate) fn fit(case: &Case<'_>, node: &Tree) -> Verdict {
    let (room, used, requested) = (allocatable(node), used(case, node), requests(case.pod));
    let mut reasons = Vec::new();
    let pods = case.world.pods_on(node.str("metadata.name")).count() as i64;
    if pods + 1 > amount(&room, "pods") {
        reasons.push("Too many pods".to_string());
    }
    let mut unresolvable = false;
    for (name, requested) in in_order(&requested).filter(|(name, _)| !is_ignored(case, name)) {
        if requested > 0 && requested > amount(&room, name) - amount(&used, name) {
            reasons.push(format!("Insufficient {name}"));
            unresolvable |= requested > amount(&room, name);
        }
    }
    match (reasons.is_empty(), unresolvable) {
        (true, _) => Verdict::Fits,
        (_, true) => Verdict::Unresolvable(reasons),
        (_, false) => Verdict::Unschedulable(reasons),
    }
}

fn amount(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).copied().unwrap_or(0)
}

const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn in_order(amounts: &Amounts) -> impl Iterator<Item = (&str, i64)> {
    let first = FIRST.into_iter().map(|name| (name, amount(amounts, name)));
    first.chain(amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).filter(|(name, _)| is_scalar(name)))
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

fn is_ignored(case: &Case<'_>, name: &str) -> bool {
    let group = name.split_once('/').map(|(group, _)| group);
    let of_group = group.is_some_and(|group| case.settings.ignored_resource_groups.iter().any(|g| g == group));
    group.is_some() && (of_group || case.settings.ignored_resources.iter().any(|ignored| ignored == name))
}

/// The allocation of a resource before and with the pod, and the capacity.
struct Load {
    before: i64,
    after: i64,
    room: i64,
    weight: i64,
}

pub(crate) fn score_fit(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let requested = requests_nonzero(case.pod);
    let score = |node: &&Tree| {
        let loads = loads(&case.settings.fit_resources, &requested, &used_nonzero(case, node), &allocatable(node));
        match &case.settings.strategy {
            Strategy::LeastAllocated => weighted(&loads, |load| least(load.after, load.room)),
            Strategy::MostAllocated => weighted(&loads, |load| load.after.min(load.room) * MAX_SCORE / load.room),
            Strategy::RequestedToCapacityRatio(shape) => by_shape(&loads, shape),
        }
    };
    Some(nodes.iter().map(score).collect())
}

/// Resources that the node does not have do not count, nor special ones that the pod does not request.
fn loads(resources: &[(String, i64)], requested: &Amounts, used: &Amounts, room: &Amounts) -> Vec<Load> {
    let counts = |name: &str| amount(room, name) != 0 && (FIRST.contains(&name) || amount(requested, name) != 0);
    let resources = resources.iter().filter(|(name, _)| counts(name));
    let load = |(name, weight): &(String, i64)| {
        let before = amount(used, name);
        Load { before, after: before + amount(requested, name), room: amount(room, name), weight: *weight }
    };
    resources.map(load).collect()
}

fn least(after: i64, room: i64) -> i64 {
    if after > room { 0 } else { (room - after) * MAX_SCORE / room }
}

fn weighted(loads: &[Load], score: impl Fn(&Load) -> i64) -> i64 {
    let weights: i64 = loads.iter().map(|load| load.weight).sum();
    let sum: i64 = loads.iter().map(|load| score(load) * load.weight).sum();
    if weights == 0 { 0 } else { sum / weights }
}

/// Resources without a score do not count.
fn by_shape(loads: &[Load], shape: &[(i64, i64)]) -> i64 {
    let percent = |load: &Load| if load.after > load.room { 100 } else { load.after * 100 / load.room };
    let scores = loads.iter().map(|load| (interpolate(shape, percent(load)), load.weight));
    let scores: Vec<(i64, i64)> = scores.filter(|(score, _)| *score > 0).collect();
    let weights: i64 = scores.iter().map(|(_, weight)| weight).sum();
    let sum: i64 = scores.iter().map(|(score, weight)| score * weight).sum();
    if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
}

/// The shape's scores go up to 10.
fn interpolate(shape: &[(i64, i64)], percent: i64) -> i64 {
    let scaled = |score: i64| score * MAX_SCORE / 10;
    let Some(at) = shape.iter().position(|(utilization, _)| percent <= *utilization) else {
        return shape.last().map_or(0, |(_, score)| scaled(*score));
    };
    if at == 0 {
        return scaled(shape[0].1);
    }
    let ((x0, y0), (x1, y1)) = (shape[at - 1], shape[at]);
    scaled(y0) + (scaled(y1) - scaled(y0)) * (percent - x0) / (x1 - x0)
}

/// Above the middle if the pod makes the allocation more even, below it if less.
pub(crate) fn score_balance(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let requested = requests(case.pod);
    let resources: Vec<(String, i64)> = case.settings.balanced_resources.iter().map(|name| (name.clone(), 1)).collect();
    if resources.iter().all(|(name, _)| amount(&requested, name) == 0) {
        return None;
    }
    let score = |node: &&Tree| {
        let loads = loads(&resources, &requested, &used(case, node), &allocatable(node));
        let half = MAX_SCORE / 2;
        let evener = evenness(&loads, |load| load.after) - evenness(&loads, |load| load.before);
        half + (half + evener) / 2
    };
    Some(nodes.iter().map(score).collect())
}

fn evenness(loads: &[Load], used: impl Fn(&Load) -> i64) -> i64 {
    let parts: Vec<f64> = loads.iter().map(|load| (used(load) as f64 / load.room as f64).min(1.0)).collect();
    let deviation = match parts[..] {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        _ => {
            let mean = parts.iter().sum::<f64>() / parts.len() as f64;
            (parts.iter().map(|part| (part - mean) * (part - mean)).sum::<f64>() / parts.len() as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
