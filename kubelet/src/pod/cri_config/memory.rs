//! Memory of containers: protection, throttling and swap. Most of it needs cgroup v2.

use api::Tree;

use super::resources::Limits;
use crate::model::pod::is_critical;
use crate::model::resources::{Class, amount, class};

/// The rules of the node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    /// Cgroups are of version 2.
    pub(crate) unified: bool,
    /// The kernel accounts swap.
    pub(crate) counts_swap: bool,
    /// Bytes of swap of the machine, if burstable pods may use it.
    pub(crate) swap: Option<i64>,
    /// The share of the memory between request and limit that a container gets before it is throttled.
    pub(crate) throttling: Option<f64>,
    /// Requested memory is protected from reclaim.
    pub(crate) reserves: bool,
    /// The OOM killer kills all processes of a container together.
    pub(crate) ends_whole: bool,
    /// The allocatable bytes of pods, for containers without a limit.
    pub(crate) allocatable: i64,
}

const PAGE: i64 = 4096;

pub(crate) fn limit(pod: &Tree, spec: &Tree, limits: Limits, linux: &mut cri::LinuxContainerResources) {
    let rules = limits.rules;
    let request = amount(spec.at("resources.requests.memory"));
    let limit = linux.memory_limit_in_bytes;
    let mut set = |file: &str, value: i64| drop(linux.unified.insert(file.to_string(), value.to_string()));
    if rules.unified && rules.ends_whole {
        set("memory.oom.group", 1);
    }
    let reserved = match class(pod) {
        Class::Guaranteed => Some("memory.min"),
        Class::Burstable => Some("memory.low"),
        Class::BestEffort => None,
    };
    if let Some(file) = reserved.filter(|_| rules.unified && rules.reserves && request > 0) {
        set(file, request);
    }
    if let Some(high) = high(request, limit, rules).filter(|_| rules.unified) {
        set("memory.high", high);
    }
    if !rules.counts_swap {
        return;
    }
    let swap = swap(pod, request, limit, limits);
    match rules.unified {
        true => set("memory.swap.max", swap),
        // Version 1 counts memory and swap together, and only with a limit.
        false => linux.memory_swap_limit_in_bytes = limit,
    }
}

/// The usage at which the kernel throttles a container; None without throttling.
fn high(request: i64, limit: i64, rules: Rules) -> Option<i64> {
    let factor = rules.throttling?;
    if request == limit && request > 0 {
        return None;
    }
    let most = if limit > 0 { limit } else { rules.allocatable };
    let more = (most - request) as f64 * factor;
    let high = (request + more as i64) / PAGE * PAGE;
    (high > request).then_some(high)
}

/// How much a container may write out: a burstable one in the measure of its request.
fn swap(pod: &Tree, request: i64, limit: i64, limits: Limits) -> i64 {
    let Some(all) = limits.rules.swap.filter(|_| limits.memory > 0) else { return 0 };
    let may = class(pod) == Class::Burstable && request > 0 && request != limit && !is_critical(pod);
    let part = i128::from(request) * i128::from(all) / i128::from(limits.memory);
    if may { i64::try_from(part).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use api::{list, tree, yaml};

    use super::*;
    use crate::pod::cri_config::resources;

    fn show(text: &str, rules: Rules) -> String {
        let resources = yaml::decode(text.as_bytes()).expect("YAML");
        let spec = tree! { "name" => "a", "resources" => resources };
        let pod = tree! { "spec" => tree! { "containers" => list![spec.clone()] } };
        let made = resources::of_container(&pod, &spec, Limits { memory: 1 << 30, rules, ..Limits::default() });
        let mut lines: Vec<String> = made.unified.iter().map(|(file, value)| format!("{file}={value}")).collect();
        if made.memory_swap_limit_in_bytes > 0 {
            lines.push(format!("both={}", made.memory_swap_limit_in_bytes));
        }
        lines.join(" ")
    }

    #[test]
    fn sets_memory_protection_throttling_and_swap() {
        const BURSTABLE: &str = "{requests: {memory: 256Mi}, limits: {memory: 512Mi}}";
        const FULL: &str = "{requests: {memory: 1Mi, cpu: 1}, limits: {memory: 1Mi, cpu: 1}}";
        let two = Rules { unified: true, allocatable: 1 << 30, ..Rules::default() };
        let cases = [
            (BURSTABLE, Rules::default(), ""),
            (BURSTABLE, two, ""),
            (BURSTABLE, Rules { ends_whole: true, ..two }, "memory.oom.group=1"),
            (BURSTABLE, Rules { throttling: Some(0.5), ..two }, "memory.high=402653184"),
            ("{}", Rules { throttling: Some(0.9), ..two }, "memory.high=966365184"),
            (FULL, Rules { throttling: Some(0.9), reserves: true, ..two }, "memory.min=1048576"),
            (BURSTABLE, Rules { reserves: true, ..two }, "memory.low=268435456"),
            (BURSTABLE, Rules { counts_swap: true, ..two }, "memory.swap.max=0"),
            (BURSTABLE, Rules { counts_swap: true, swap: Some(4 << 20), ..two }, "memory.swap.max=1048576"),
            (FULL, Rules { counts_swap: true, swap: Some(4 << 20), ..two }, "memory.swap.max=0"),
            (BURSTABLE, Rules { counts_swap: true, ..Rules::default() }, "both=536870912"),
            ("{}", Rules { counts_swap: true, ..Rules::default() }, ""),
        ];
        for (resources, rules, expected) in cases {
            assert_eq!(show(resources, rules), expected, "{resources} {rules:?}");
        }
    }
}
