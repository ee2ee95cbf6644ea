//! The resource usage of cgroups.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::limits::shares;
use super::{Hierarchies, Resources, below};

/// The usage of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
    pub working_set_bytes: u64,
    pub available_bytes: Option<u64>,
    pub rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub swap_bytes: Option<u64>,
    pub processes: u64,
    pub oom_kills: u64,
    pub cpu_pressure: Option<Pressure>,
    pub memory_pressure: Option<Pressure>,
    pub io_pressure: Option<Pressure>,
}

/// Pressure stall information.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    pub some: PressureLine,
    pub full: PressureLine,
}

/// Averages in percent, total in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PressureLine {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total: u64,
}

/// The kernel reports a larger limit if there is none.
const UNLIMITED: u64 = 1 << 60;

impl Hierarchies {
    /// The number of OOM kills below the path.
    pub fn oom_kills(&self, path: &str) -> u64 {
        let file = if self.unified_only() { "memory.events" } else { "memory.oom_control" };
        self.text("memory", path, file).and_then(|text| table(&text).get("oom_kill").copied()).unwrap_or(0)
    }

    /// The current CPU shares, CPU quota and memory limit of a cgroup; None without a limit.
    pub fn limits(&self, path: &str) -> Resources {
        let signed = |file: &str| self.text("cpu", path, file).and_then(|text| text.trim().parse::<i64>().ok());
        if !self.unified_only() {
            return Resources {
                cpu_shares: self.number("cpu", path, "cpu.shares"),
                cpu_quota: signed("cpu.cfs_quota_us").filter(|quota| *quota > 0),
                cpu_period: self.number("cpu", path, "cpu.cfs_period_us"),
                memory: limited(self.number("memory", path, "memory.limit_in_bytes")),
                ..Resources::default()
            };
        }
        let max = self.text("cpu", path, "cpu.max").unwrap_or_default();
        let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
        Resources {
            cpu_shares: self.number("cpu", path, "cpu.weight").map(shares),
            cpu_quota: quota.parse().ok(),
            cpu_period: period.parse().ok(),
            memory: limited(self.number("memory", path, "memory.max")),
            ..Resources::default()
        }
    }

    /// The current usage of a cgroup.
    pub fn usage(&self, path: &str) -> Usage {
        let mut usage = if self.unified_only() { self.usage_v2(path) } else { self.usage_v1(path) };
        usage.oom_kills = self.oom_kills(path);
        usage.processes = self.number("pids", path, "pids.current").unwrap_or(0);
        usage.cpu_pressure = self.pressure(path, "cpu.pressure");
        usage.memory_pressure = self.pressure(path, "memory.pressure");
        usage.io_pressure = self.pressure(path, "io.pressure");
        usage
    }

    fn usage_v1(&self, path: &str) -> Usage {
        let stat = self.text("memory", path, "memory.stat").map(|t| table(&t)).unwrap_or_default();
        let of = |key: &str| stat.get(key).copied().unwrap_or(0);
        let memory = self.number("memory", path, "memory.usage_in_bytes").unwrap_or(0);
        let both = self.number("memory", path, "memory.memsw.usage_in_bytes");
        let working_set = memory.saturating_sub(of("total_inactive_file"));
        let limit = self.number("memory", path, "memory.limit_in_bytes").filter(|l| *l < UNLIMITED);
        Usage {
            cpu_nanos: self.number("cpuacct", path, "cpuacct.usage").unwrap_or(0),
            memory_bytes: memory,
            working_set_bytes: working_set,
            available_bytes: limit.map(|l| l.saturating_sub(working_set)),
            rss_bytes: of("total_rss"),
            page_faults: of("total_pgfault"),
            major_page_faults: of("total_pgmajfault"),
            swap_bytes: both.map(|b| b.saturating_sub(memory)),
            ..Usage::default()
        }
    }

    fn usage_v2(&self, path: &str) -> Usage {
        let stat = self.text("memory", path, "memory.stat").map(|t| table(&t)).unwrap_or_default();
        let cpu = self.text("cpu", path, "cpu.stat").map(|t| table(&t)).unwrap_or_default();
        let of = |key: &str| stat.get(key).copied().unwrap_or(0);
        let memory = self.number("memory", path, "memory.current").unwrap_or(0);
        let working_set = memory.saturating_sub(of("inactive_file"));
        let limit = self.number("memory", path, "memory.max");
        Usage {
            cpu_nanos: cpu.get("usage_usec").copied().unwrap_or(0) * 1000,
            memory_bytes: memory,
            working_set_bytes: working_set,
            available_bytes: limit.map(|l| l.saturating_sub(working_set)),
            rss_bytes: of("anon"),
            page_faults: of("pgfault"),
            major_page_faults: of("pgmajfault"),
            swap_bytes: self.number("memory", path, "memory.swap.current"),
            ..Usage::default()
        }
    }

    pub(super) fn file(&self, controller: &str, path: &str, file: &str) -> Option<PathBuf> {
        let root = self.controller(controller).or(self.v2.as_deref().filter(|_| self.unified_only()))?;
        Some(below(root, path).join(file))
    }

    fn text(&self, controller: &str, path: &str, file: &str) -> Option<String> {
        fs::read_to_string(self.file(controller, path, file)?).ok()
    }

    fn number(&self, controller: &str, path: &str, file: &str) -> Option<u64> {
        self.text(controller, path, file)?.trim().parse().ok()
    }

    fn pressure(&self, path: &str, file: &str) -> Option<Pressure> {
        let text = fs::read_to_string(below(self.v2.as_ref()?, path).join(file)).ok()?;
        Some(parse_pressure(&text))
    }
}

fn limited(bytes: Option<u64>) -> Option<i64> {
    bytes.filter(|bytes| *bytes < UNLIMITED).and_then(|bytes| i64::try_from(bytes).ok())
}

/// Parses lines of a name and a number.
fn table(text: &str) -> BTreeMap<String, u64> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(key, value)| Some((key.to_string(), value.trim().parse().ok()?))).collect()
}

fn parse_pressure(text: &str) -> Pressure {
    let line = |name: &str| {
        let fields = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        let of = |key: &str| fields.split(' ').find_map(|f| f.strip_prefix(key)).unwrap_or_default();
        PressureLine {
            avg10: of("avg10=").parse().unwrap_or(0.0),
            avg60: of("avg60=").parse().unwrap_or(0.0),
            avg300: of("avg300=").parse().unwrap_or(0.0),
            total: of("total=").parse().unwrap_or(0),
        }
    };
    Pressure { some: line("some "), full: line("full ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_lines() {
        let text =
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        let pressure = parse_pressure(text);
        assert_eq!((pressure.some.avg10, pressure.some.total, pressure.full.total), (1.5, 1234, 9));
    }

    #[test]
    fn tables() {
        assert_eq!(table("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")["oom_kill"], 3);
    }
}
