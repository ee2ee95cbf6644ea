//! The resource usage of containers and pods, from their cgroups, their layers and their network.

use cri::{
    ContainerStats, CpuUsage, FilesystemIdentifier, FilesystemUsage, IoUsage, LinuxPodSandboxStats, MemoryUsage,
    NetworkInterfaceUsage, NetworkUsage, PodSandboxStats, ProcessUsage, PsiData, PsiStats, SwapUsage, UInt64Value,
};

use super::state::{Container, Sandbox};
use super::{Service, convert};
use crate::plan;
use crate::shim::log::Timestamp;
use cgroup::stats::{Pressure, PressureLine, Usage};

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

impl Service {
    pub(super) fn container_usage(&self, container: &Container) -> ContainerStats {
        let usage = self.0.cgroups.usage(&container.record().cgroup);
        let now = Timestamp::now().0;
        let layer = self.0.images.usage(&container.id);
        ContainerStats {
            attributes: Some(convert::container_attributes(container)),
            cpu: Some(cpu(&usage, now)),
            memory: Some(memory(&usage, now)),
            writable_layer: Some(FilesystemUsage {
                timestamp: now,
                fs_id: Some(self.filesystem()),
                used_bytes: value(layer.bytes),
                inodes_used: value(layer.inodes),
            }),
            swap: usage.swap_bytes.map(|bytes| SwapUsage {
                timestamp: now,
                swap_available_bytes: None,
                swap_usage_bytes: value(bytes),
            }),
            io: Some(IoUsage { timestamp: now, psi: usage.io_pressure.as_ref().map(psi) }),
        }
    }

    pub(super) fn filesystem(&self) -> FilesystemIdentifier {
        FilesystemIdentifier { mountpoint: self.0.images.root().to_string_lossy().into_owned() }
    }

    pub(super) fn sandbox_usage(&self, sandbox: &Sandbox) -> PodSandboxStats {
        let record = sandbox.record();
        let usage = self.0.cgroups.usage(&plan::sandbox_cgroup(&record.config()));
        let now = Timestamp::now().0;
        let containers = self.containers_of(&sandbox.id);
        let running = containers.iter().filter(|c| c.is_running());
        PodSandboxStats {
            attributes: Some(convert::sandbox_attributes(&record)),
            linux: Some(LinuxPodSandboxStats {
                cpu: Some(cpu(&usage, now)),
                memory: Some(memory(&usage, now)),
                network: network(record.pause, now),
                process: Some(ProcessUsage { timestamp: now, process_count: value(usage.processes) }),
                containers: running.map(|c| self.container_usage(c)).collect(),
                io: Some(IoUsage { timestamp: now, psi: usage.io_pressure.as_ref().map(psi) }),
            }),
            windows: None,
        }
    }
}

fn cpu(usage: &Usage, now: i64) -> CpuUsage {
    CpuUsage {
        timestamp: now,
        usage_core_nano_seconds: value(usage.cpu_nanos),
        usage_nano_cores: None,
        psi: usage.cpu_pressure.as_ref().map(psi),
    }
}

fn memory(usage: &Usage, now: i64) -> MemoryUsage {
    MemoryUsage {
        timestamp: now,
        working_set_bytes: value(usage.working_set_bytes),
        available_bytes: usage.available_bytes.and_then(value),
        usage_bytes: value(usage.memory_bytes),
        rss_bytes: value(usage.rss_bytes),
        page_faults: value(usage.page_faults),
        major_page_faults: value(usage.major_page_faults),
        psi: usage.memory_pressure.as_ref().map(psi),
    }
}

fn psi(pressure: &Pressure) -> PsiStats {
    let line = |l: &PressureLine| PsiData { total: l.total, avg10: l.avg10, avg60: l.avg60, avg300: l.avg300 };
    PsiStats { full: Some(line(&pressure.full)), some: Some(line(&pressure.some)) }
}

/// The kernel shows the network of a process in /proc, so that its namespace need not be entered.
fn network(pause: i32, now: i64) -> Option<NetworkUsage> {
    if pause == 0 {
        return None;
    }
    let mut interfaces = interfaces_of(pause);
    let default = interfaces.iter().position(|i| i.name == "eth0").map(|at| interfaces.remove(at));
    Some(NetworkUsage { timestamp: now, default_interface: default, interfaces })
}

pub(super) fn interfaces_of(pause: i32) -> Vec<NetworkInterfaceUsage> {
    interfaces(&std::fs::read_to_string(format!("/proc/{pause}/net/dev")).unwrap_or_default())
}

fn interfaces(table: &str) -> Vec<NetworkInterfaceUsage> {
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let parse = |(name, rest): (&str, &str)| {
        let numbers: Vec<u64> = rest.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let name = name.trim();
        (name != "lo" && numbers.len() >= 11).then(|| NetworkInterfaceUsage {
            name: name.into(),
            rx_bytes: value(numbers[0]),
            rx_errors: value(numbers[2]),
            tx_bytes: value(numbers[8]),
            tx_errors: value(numbers[10]),
        })
    };
    lines.filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_interfaces_of_a_pod() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 100 5 1 0 0 0 0 0 200 6 2 0 0 0 0 0\n";
        let found = interfaces(table);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "eth0");
        assert_eq!((&found[0].rx_bytes, &found[0].rx_errors), (&value(100), &value(1)));
        assert_eq!((&found[0].tx_bytes, &found[0].tx_errors), (&value(200), &value(2)));
    }
}
