//! How much a cgroup may have: of a pod, of a class, of all pods. Pure.

use std::collections::BTreeMap;

use api::{Tree, tree};
use cgroup::Resources;

use crate::model::pod;
use crate::model::resources::{Class, class, milli, page_size, quota, shares};
use crate::resources::managers::requests;

/// Rules for all cgroups of the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// Microseconds; None if CPU limits are not enforced.
    pub(crate) cfs_period: Option<i64>,
    /// Containers of Guaranteed pods that request whole CPUs have exclusive CPUs without a quota.
    pub(crate) pins_cpus: bool,
    /// The limit of processes of a pod; None without a limit.
    pub(crate) pids: Option<i64>,
    /// Requests for memory are kept from being reclaimed, in version 2.
    pub(crate) reserves: bool,
    /// Sizes of large pages that the machine has, in bytes.
    pub(crate) page_sizes: Vec<i64>,
}

/// The contribution of a pod to its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) class: Class,
    pub(crate) milli_cpu: i64,
    pub(crate) memory: i64,
}

/// The pod without the resources in its status: its spec has the allocated resources.
fn bare(pod: &Tree) -> Tree {
    tree! {
        "metadata" => pod.at("metadata").clone(),
        "spec" => pod.at("spec").clone(),
        "status" => tree! { "qosClass" => pod.str("status.qosClass") },
    }
}

pub(crate) fn share(pod: &Tree) -> Share {
    let requests = podmodel::requests(&bare(pod));
    Share { class: class(pod), milli_cpu: requests.milli_cpu, memory: requests.memory }
}

pub(crate) fn of_pod(pod: &Tree, rules: &Rules) -> Resources {
    let bare = bare(pod);
    let (requests, limits) = (podmodel::requests(&bare), podmodel::limits(&bare));
    let class = class(pod);
    let is_limited = |name: &str| class == Class::Guaranteed || class == Class::Burstable && all_limit(pod, name);
    let has_own = rules.pins_cpus && requests::any_cpus(pod);
    let period = rules.cfs_period.filter(|_| is_limited("cpu") && !has_own);
    let milli_cpu = if class == Class::BestEffort { 0 } else { requests.milli_cpu };
    Resources {
        cpu_shares: Some(shares(milli_cpu).unsigned_abs()),
        cpu_period: period.map(i64::unsigned_abs),
        cpu_quota: period.map(|period| quota(limits.milli_cpu, period)),
        memory: Some(limits.memory).filter(|_| is_limited("memory")),
        pids: rules.pids,
        hugepages: pages(&requests, rules),
        unified: reserved(class, requests.memory, rules),
        ..Resources::default()
    }
}

/// Whether the pod as a whole, or each of its containers, has a limit.
fn all_limit(pod: &Tree, name: &str) -> bool {
    let limit = |tree: &Tree| milli(tree.at("resources.limits").at(name)) > 0;
    limit(pod.at("spec")) || pod::LISTS[..2].iter().flat_map(|list| pod.list(list)).all(limit)
}

/// A pod gets no huge pages of sizes that it does not request.
fn pages(requests: &podmodel::Resources, rules: &Rules) -> BTreeMap<String, u64> {
    let none = rules.page_sizes.iter().map(|size| (page_size(*size), 0));
    let requested = requests.others.iter().filter_map(|(name, amount)| {
        let size = api::quantity::Quantity::parse(name.strip_prefix("hugepages-")?).ok()?;
        Some((page_size(size.value()), amount.unsigned_abs()))
    });
    none.chain(requested).collect()
}

/// Memory that is protected from reclaim: strictly for Guaranteed pods, best-effort for Burstable ones.
fn reserved(class: Class, memory: i64, rules: &Rules) -> BTreeMap<String, String> {
    let file = match class {
        Class::Guaranteed => "memory.min",
        Class::Burstable => "memory.low",
        Class::BestEffort => return BTreeMap::new(),
    };
    let entry = (file.to_string(), memory.to_string());
    (rules.reserves && memory > 0).then_some(entry).into_iter().collect()
}

/// Weights and protected memory of the classes.
pub(crate) fn of_classes(taken: &BTreeMap<String, Share>, rules: &Rules) -> Vec<(Class, Resources)> {
    let of = |class: Class| {
        let own = taken.values().filter(move |share| share.class == class);
        own.fold((0, 0), |(cpu, memory), share| (cpu + share.milli_cpu, memory + share.memory))
    };
    let ((_, guaranteed), (milli_cpu, burstable)) = (of(Class::Guaranteed), of(Class::Burstable));
    let kept = |entries: &[(&str, i64)]| -> BTreeMap<String, String> {
        let entries = entries.iter().filter(|_| rules.reserves);
        entries.map(|(file, bytes)| ((*file).to_string(), bytes.to_string())).collect()
    };
    let weight = |milli_cpu: i64| Some(shares(milli_cpu).unsigned_abs());
    let whole = kept(&[("memory.min", guaranteed), ("memory.low", burstable)]);
    let low = kept(&[("memory.low", burstable)]);
    vec![
        (Class::Guaranteed, Resources { unified: whole, ..Resources::default() }),
        (Class::Burstable, Resources { cpu_shares: weight(milli_cpu), unified: low, ..Resources::default() }),
        (Class::BestEffort, Resources { cpu_shares: weight(0), ..Resources::default() }),
    ]
}

/// The limits of the cgroup that is reserved by this name, such as the system's; None where they are not enforced.
pub(crate) fn of_reserved(enforced: &[String], name: &str, amounts: &crate::config::Resources) -> Option<Resources> {
    let mode = enforced.iter().find_map(|one| one.strip_prefix(name))?;
    let all = of_part(amounts);
    match mode {
        "" => Some(all),
        // Only compressible resources, for which processes wait instead of being killed.
        _ => Some(Resources { cpu_shares: all.cpu_shares, ..Resources::default() }),
    }
}

pub(crate) fn of_part(amounts: &crate::config::Resources) -> Resources {
    let value = |name: &str| amounts.get(name).map(|quantity| quantity.value());
    let pages = amounts.iter().filter_map(|(name, amount)| {
        let size = api::quantity::Quantity::parse(name.strip_prefix("hugepages-")?).ok()?;
        Some((page_size(size.value()), amount.value().unsigned_abs()))
    });
    Resources {
        cpu_shares: amounts.get("cpu").map(|cpu| shares(cpu.milli_value()).unsigned_abs()),
        memory: value("memory"),
        pids: value("pid"),
        hugepages: pages.collect(),
        ..Resources::default()
    }
}

/// The limits that are larger than the current ones.
pub(crate) fn grown(now: &Resources, wanted: &Resources) -> Resources {
    let part = |quota: Option<i64>, period: Option<u64>| {
        Some(i128::from(quota?) * 1_000_000 / i128::from(period.filter(|period| *period > 0)?))
    };
    let (before, after) = (part(now.cpu_quota, now.cpu_period), part(wanted.cpu_quota, wanted.cpu_period));
    let has_more_time = before.is_some() && after > before;
    Resources {
        cpu_shares: wanted.cpu_shares.filter(|shares| now.cpu_shares.is_some_and(|now| *shares > now)),
        cpu_quota: wanted.cpu_quota.filter(|_| has_more_time),
        cpu_period: wanted.cpu_period.filter(|_| has_more_time),
        memory: wanted.memory.filter(|memory| now.memory.is_some_and(|now| *memory > now)),
        ..Resources::default()
    }
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn read(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    fn rules() -> Rules {
        let page_sizes = vec![2 << 20, 1 << 30];
        Rules { cfs_period: Some(100_000), pids: Some(64), page_sizes, ..Rules::default() }
    }

    /// The writes of cgroup v1 in one line, without those that do not matter for the case.
    fn show(resources: &Resources) -> String {
        let writes = cgroup::limits::v1(&Resources { unified: BTreeMap::new(), ..resources.clone() }).expect("limits");
        let values = writes.into_iter().flat_map(|write| write.values);
        let short = |(file, value): (String, String)| {
            let file = file.replace("_in_bytes", "").replace("cfs_", "");
            format!("{file}={value}")
        };
        let kept = values.map(short).filter(|line| !line.ends_with("hugetlb.1GB.limit=0") && !line.contains("period"));
        kept.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn limits_reserved_cgroups_as_configured() {
        let amount = |text: &str| api::quantity::Quantity::parse(text).expect("a quantity");
        let amounts = [("cpu".to_string(), amount("500m")), ("memory".to_string(), amount("64Mi"))].into();
        let enforced = ["pods".to_string(), "kube-reserved-compressible".to_string(), "system-reserved".to_string()];
        let shown = |name: &str| of_reserved(&enforced, name, &amounts).map(|limits| show(&limits));
        assert_eq!(shown("kube-reserved").as_deref(), Some("cpu.shares=512"));
        assert_eq!(shown("system-reserved").as_deref(), Some("cpu.shares=512 memory.limit=67108864"));
        assert_eq!(of_reserved(&enforced[..1], "kube-reserved", &amounts), None);
    }

    #[test]
    fn exclusive_cpus_have_no_quota() {
        let pod = |cpu: &str| {
            let amounts = format!("{{cpu: {cpu}, memory: 1Mi}}");
            read(&format!("spec: {{containers: [{{name: a, resources: {{limits: {amounts}, requests: {amounts}}}}}]}}"))
        };
        let quota = |cpu: &str, pins_cpus: bool| of_pod(&pod(cpu), &Rules { pins_cpus, ..rules() }).cpu_quota;
        assert_eq!((quota("2", true), quota("2", false), quota("1500m", true)), (None, Some(200_000), Some(150_000)));
    }

    #[test]
    fn pod_limits_include_containers_and_overhead() {
        let cases = [
            ("containers: [{name: a}]", "cpu.shares=2 pids.max=64 hugetlb.2MB.limit=0"),
            (
                "containers: [{name: a, resources: {limits: {cpu: '1', memory: 64Mi}, requests: {cpu: '1', memory: 64Mi}}}]",
                "cpu.shares=1024 cpu.quota_us=100000 memory.limit=67108864 pids.max=64 hugetlb.2MB.limit=0",
            ),
            (
                "containers: [{name: a, resources: {limits: {cpu: 500m}, requests: {cpu: 250m}}}, {name: b}]",
                "cpu.shares=256 pids.max=64 hugetlb.2MB.limit=0",
            ),
            (
                "{overhead: {cpu: 250m, memory: 1Mi}, containers: [{name: a, resources: {limits: {memory: 1Mi}, requests: {cpu: 250m}}}]}",
                "cpu.shares=512 memory.limit=2097152 pids.max=64 hugetlb.2MB.limit=0",
            ),
            (
                "{initContainers: [{name: s, restartPolicy: Always, resources: {limits: {memory: 1Mi}}}, {name: i, resources: {limits: {memory: 8Mi}}}],
                  containers: [{name: a, resources: {limits: {memory: 2Mi}}}]}",
                "cpu.shares=2 memory.limit=9437184 pids.max=64 hugetlb.2MB.limit=0",
            ),
            (
                "{resources: {limits: {cpu: '2', memory: 4Mi}, requests: {cpu: '2'}}, containers: [{name: a}, {name: b}]}",
                "cpu.shares=2048 cpu.quota_us=200000 memory.limit=4194304 pids.max=64 hugetlb.2MB.limit=0",
            ),
            (
                "containers: [{name: a, resources: {limits: {hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 4Mi, cpu: 1m}}}]",
                "cpu.shares=2 pids.max=64 hugetlb.2MB.limit=4194304",
            ),
        ];
        for (spec, expected) in cases {
            let mut pod = tree! { "spec" => read(spec) };
            kinds::podspec::set_pod_defaults(&mut pod);
            assert_eq!(show(&of_pod(&pod, &rules())), expected, "{spec}");
        }
    }

    #[test]
    fn reserves_memory_by_class() {
        let text = |class: &str| {
            read(&format!(
                "{{spec: {{containers: [{{name: a, resources: {{requests: {{memory: 1Mi}}}}}}]}}, status: {{qosClass: {class}}}}}"
            ))
        };
        let rules = Rules { reserves: true, ..Rules::default() };
        for (class, file) in [("Guaranteed", "memory.min"), ("Burstable", "memory.low")] {
            assert_eq!(of_pod(&text(class), &rules).unified, [(file.to_string(), "1048576".to_string())].into());
            assert_eq!(of_pod(&text(class), &Rules::default()).unified, BTreeMap::new());
        }
    }

    #[test]
    fn class_weights_are_sums_of_pods() {
        let share = |class, milli_cpu, memory| Share { class, milli_cpu, memory };
        let taken = [
            ("a".to_string(), share(Class::Burstable, 500, 10)),
            ("b".to_string(), share(Class::Burstable, 1500, 20)),
            ("c".to_string(), share(Class::Guaranteed, 4000, 40)),
        ]
        .into();
        let show = |rules: &Rules| -> Vec<String> {
            let of = |(class, made): (Class, Resources)| format!("{class:?} {:?} {:?}", made.cpu_shares, made.unified);
            of_classes(&taken, rules).into_iter().map(of).collect()
        };
        assert_eq!(show(&Rules::default()), ["Guaranteed None {}", "Burstable Some(2048) {}", "BestEffort Some(2) {}"]);
        assert_eq!(
            show(&Rules { reserves: true, ..Rules::default() })[..2],
            [
                r#"Guaranteed None {"memory.low": "30", "memory.min": "40"}"#,
                r#"Burstable Some(2048) {"memory.low": "30"}"#
            ]
        );
    }

    #[test]
    fn grows_limits_before_containers() {
        let of = |shares, quota, memory| Resources {
            cpu_shares: Some(shares),
            cpu_quota: quota,
            cpu_period: Some(100_000),
            memory,
            ..Resources::default()
        };
        let show = |made: Resources| (made.cpu_shares, made.cpu_quota, made.memory);
        let now = of(10, Some(1000), Some(100));
        let cases = [
            (&now, of(20, Some(2000), Some(200)), (Some(20), Some(2000), Some(200))),
            (&now, of(5, Some(500), Some(50)), (None, None, None)),
            (&now, of(20, Some(500), Some(200)), (Some(20), None, Some(200))),
            (&of(10, None, None), of(10, Some(1000), Some(100)), (None, None, None)),
        ];
        for (now, wanted, expected) in cases {
            assert_eq!(show(grown(now, &wanted)), expected, "{wanted:?}");
        }
    }
}
