//! The usage of the whole machine, from the kernel.

use std::path::Path;

use super::psi::Pressures;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filesystem {
    pub(crate) capacity: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) inodes_used: u64,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Machine {
    pub(crate) cores: u64,
    pub(crate) cpu_nanoseconds: u64,
    /// The current usage in nanocores.
    pub(crate) nano_cores: Option<u64>,
    pub(crate) pressure: Pressures,
    pub(crate) memory: Memory,
    /// The file system of pods' directories.
    pub(crate) filesystem: Filesystem,
    pub(crate) max_pid: u64,
    pub(crate) processes: u64,
    /// Since the Unix epoch.
    pub(crate) started_seconds: i64,
    pub(crate) interfaces: Vec<Interface>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) capacity: u64,
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) swap_usage: u64,
    pub(crate) swap_available: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_errors: u64,
}

/// Times in `/proc/stat` are in hundredths of a second on every machine there is.
const NANOSECONDS_A_TICK: u64 = 10_000_000;

pub(crate) fn read(root: &Path) -> Machine {
    let file = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let stat = file("/proc/stat");
    let (cpu_nanoseconds, cores, started_seconds) = cpu(&stat);
    Machine {
        cores,
        cpu_nanoseconds,
        nano_cores: None,
        pressure: Pressures::read(),
        memory: memory(&file("/proc/meminfo"), &file("/proc/vmstat")),
        filesystem: filesystem(root).unwrap_or_default(),
        max_pid: most_processes(&file("/proc/sys/kernel/pid_max"), &file("/proc/sys/kernel/threads-max")),
        processes: processes(&file("/proc/loadavg")),
        started_seconds,
        interfaces: interfaces(&file("/proc/net/dev")),
    }
}

pub(crate) fn filesystem(path: &Path) -> Option<Filesystem> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(Filesystem {
        capacity: bytes(stat.f_blocks),
        available: bytes(stat.f_bavail),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
    })
}

/// Time spent, number of cores, and when the machine was started.
fn cpu(stat: &str) -> (u64, u64, i64) {
    let mut found = (0, 0, 0);
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("cpu") => {
                let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
                // All but idle and iowait; guests are counted in the first two already.
                let busy = ticks.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
                found.0 = busy.map(|(_, ticks)| ticks).sum::<u64>() * NANOSECONDS_A_TICK;
            }
            Some("btime") => found.2 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
            Some(name) if name.starts_with("cpu") => found.1 += 1,
            _ => {}
        }
    }
    found
}

pub(crate) fn memory(meminfo: &str, vmstat: &str) -> Memory {
    let bytes = |key: &str| number(meminfo, key) * 1024;
    let usage = bytes("MemTotal:").saturating_sub(bytes("MemFree:"));
    Memory {
        capacity: bytes("MemTotal:"),
        usage,
        working_set: usage.saturating_sub(bytes("Inactive(file):")),
        rss: bytes("AnonPages:"),
        swap_usage: bytes("SwapTotal:").saturating_sub(bytes("SwapFree:")),
        swap_available: bytes("SwapFree:"),
        page_faults: number(vmstat, "pgfault"),
        major_page_faults: number(vmstat, "pgmajfault"),
    }
}

fn number(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.split_ascii_whitespace().next());
    line.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The lower of the two bounds that the kernel has.
pub(crate) fn most_processes(pid_max: &str, threads_max: &str) -> u64 {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    [pid_max, threads_max].into_iter().filter_map(number).min().unwrap_or(0)
}

/// `0.00 0.01 0.05 2/345 6789`: 345 of them.
pub(crate) fn processes(loadavg: &str) -> u64 {
    let pair = loadavg.split_ascii_whitespace().nth(3).and_then(|pair| pair.split_once('/'));
    pair.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

fn interfaces(dev: &str) -> Vec<Interface> {
    let lines = dev.lines().filter_map(|line| line.split_once(':'));
    let read = |(name, counts): (&str, &str)| {
        let counts: Vec<u64> = counts.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [rx_bytes, _, rx_errors, _, _, _, _, _, tx_bytes, _, tx_errors, ..] = counts[..] else { return None };
        Some(Interface { name: name.trim().to_string(), rx_bytes, rx_errors, tx_bytes, tx_errors })
    };
    lines.filter_map(read).filter(|interface| interface.name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_statistics() {
        let stat = "cpu  100 10 50 9999 500 1 2 3 40 0\ncpu0 1 2\ncpu1 1 2\nintr 5\nbtime 1700000000\n";
        assert_eq!(cpu(stat), (166 * NANOSECONDS_A_TICK, 2, 1_700_000_000));
        let meminfo = "MemTotal: 1000 kB\nMemFree: 200 kB\nInactive(file): 300 kB\nAnonPages: 50 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n";
        let memory = memory(meminfo, "pgfault 7\npgmajfault 3\n");
        assert_eq!((memory.capacity, memory.usage, memory.working_set), (1_024_000, 819_200, 512_000));
        assert_eq!((memory.swap_usage, memory.page_faults, memory.major_page_faults), (6144, 7, 3));
        assert_eq!(processes("0.00 0.01 0.05 2/345 6789\n"), 345);
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n";
        let want = Interface { name: "eth0".to_string(), rx_bytes: 10, rx_errors: 2, tx_bytes: 20, tx_errors: 3 };
        assert_eq!(interfaces(dev), [want]);
    }
}
