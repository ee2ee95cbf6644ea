//! The files and values of limits, in both versions.

use crate::Resources;
use crate::error::{Result, refused};

/// Values of one controller that are written together.
#[derive(Debug, PartialEq, Eq)]
pub struct Write {
    pub controller: &'static str,
    pub values: Vec<(String, String)>,
    /// Whether the files may be missing: a kernel without swap accounting has none for swap.
    pub optional: bool,
}

fn write(controller: &'static str, values: &[(&str, Option<String>)]) -> Option<Write> {
    let values: Vec<_> = values.iter().filter_map(|(file, v)| Some((file.to_string(), v.clone()?))).collect();
    (!values.is_empty()).then_some(Write { controller, values, optional: false })
}

fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|v| v.to_string())
}

/// The writes for version 1.
pub fn v1(resources: &Resources) -> Result<Vec<Write>> {
    if let Some(key) = resources.unified.keys().next() {
        return refused(format!("the unified setting {key} needs cgroup v2, which this machine does not use"));
    }
    let cpu = write(
        "cpu",
        &[
            ("cpu.shares", text(resources.cpu_shares)),
            ("cpu.cfs_period_us", text(resources.cpu_period)),
            ("cpu.cfs_quota_us", text(resources.cpu_quota)),
        ],
    );
    let cpuset = write(
        "cpuset",
        &[("cpuset.cpus", resources.cpuset_cpus.clone()), ("cpuset.mems", resources.cpuset_mems.clone())],
    );
    let memory = write(
        "memory",
        &[
            ("memory.limit_in_bytes", text(resources.memory)),
            ("memory.memsw.limit_in_bytes", text(resources.memory_swap.filter(|_| resources.memory.is_some()))),
        ],
    )
    .map(|w| Write { optional: true, ..w });
    let pids = write("pids", &[("pids.max", resources.pids.map(limited))]);
    let hugepages = resources.hugepages.iter().filter_map(|(size, bytes)| {
        write("hugetlb", &[(&format!("hugetlb.{size}.limit_in_bytes"), text(Some(bytes)))])
    });
    Ok([cpu, cpuset, memory, pids].into_iter().flatten().chain(hugepages).collect())
}

/// The writes for version 2.
pub fn v2(resources: &Resources) -> Vec<Write> {
    let quota = match (resources.cpu_quota, resources.cpu_period) {
        (None, None) => None,
        (quota, period) => {
            let quota = quota.filter(|q| *q > 0).map_or("max".into(), |q| q.to_string());
            Some(format!("{quota} {}", period.filter(|p| *p > 0).unwrap_or(100_000)))
        }
    };
    let cpu = write("cpu", &[("cpu.weight", text(resources.cpu_shares.map(weight))), ("cpu.max", quota)]);
    let cpuset = write(
        "cpuset",
        &[("cpuset.cpus", resources.cpuset_cpus.clone()), ("cpuset.mems", resources.cpuset_mems.clone())],
    );
    let swap = match (resources.memory, resources.memory_swap) {
        (Some(memory), Some(both)) if memory > 0 && both > 0 => Some((both - memory).max(0).to_string()),
        (_, Some(both)) if both < 0 => Some("max".into()),
        _ => None,
    };
    let memory = write("memory", &[("memory.max", resources.memory.map(limited)), ("memory.swap.max", swap)])
        .map(|w| Write { optional: true, ..w });
    let pids = write("pids", &[("pids.max", resources.pids.map(limited))]);
    let hugepages = resources
        .hugepages
        .iter()
        .filter_map(|(size, bytes)| write("hugetlb", &[(&format!("hugetlb.{size}.max"), text(Some(bytes)))]));
    let unified = resources.unified.iter().filter_map(|(k, v)| write("unified", &[(k, Some(v.clone()))]));
    [cpu, cpuset, memory, pids].into_iter().flatten().chain(hugepages).chain(unified).collect()
}

fn limited(value: i64) -> String {
    if value > 0 { value.to_string() } else { "max".into() }
}

/// Converts CPU shares of 2 to 262144 to a weight of 1 to 10000.
pub fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

/// The smallest CPU shares with this weight.
pub fn shares(weight: u64) -> u64 {
    2 + ((weight.clamp(1, 10_000) - 1) * 262_142).div_ceil(9_999)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(writes: Vec<Write>) -> Vec<String> {
        let lines = writes.into_iter().flat_map(|w| w.values);
        lines.map(|(file, value)| format!("{file}={value}")).collect()
    }

    #[test]
    fn the_same_limits_in_both_versions() {
        let resources = Resources {
            cpu_shares: Some(1024),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            memory: Some(1 << 20),
            memory_swap: Some(3 << 20),
            pids: Some(-1),
            hugepages: [("2MB".into(), 4 << 20)].into(),
            ..Resources::default()
        };
        let expected = [
            "cpu.shares=1024",
            "cpu.cfs_period_us=100000",
            "cpu.cfs_quota_us=50000",
            "memory.limit_in_bytes=1048576",
            "memory.memsw.limit_in_bytes=3145728",
            "pids.max=max",
            "hugetlb.2MB.limit_in_bytes=4194304",
        ];
        assert_eq!(flat(v1(&resources).unwrap()), expected);
        let expected = [
            "cpu.weight=39",
            "cpu.max=50000 100000",
            "memory.max=1048576",
            "memory.swap.max=2097152",
            "pids.max=max",
            "hugetlb.2MB.max=4194304",
        ];
        assert_eq!(flat(v2(&resources)), expected);
    }

    #[test]
    fn no_limit_is_no_write() {
        assert_eq!(v2(&Resources::default()), []);
        assert_eq!(v1(&Resources::default()).unwrap(), []);
    }

    #[test]
    fn unified_settings_need_version_2() {
        let resources = Resources { unified: [("memory.high".into(), "1".into())].into(), ..Resources::default() };
        assert!(v1(&resources).unwrap_err().to_string().contains("memory.high"));
        assert_eq!(flat(v2(&resources)), ["memory.high=1"]);
    }

    #[test]
    fn weights_lead_back_to_shares_of_the_same_weight() {
        for number in [2, 3, 100, 1024, 2048, 262_144] {
            assert_eq!(weight(shares(weight(number))), weight(number), "{number}");
        }
    }
}
