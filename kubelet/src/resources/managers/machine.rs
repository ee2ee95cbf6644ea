//! The topology of the machine, from sysfs: cores, sockets, NUMA nodes, caches and memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::model::cpuset::CpuSet;

/// The position of a logical CPU in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) id: u32,
    /// A core is named by its lowest CPU.
    pub(crate) core: u32,
    pub(crate) socket: u32,
    pub(crate) node: u32,
    /// The last-level cache.
    pub(crate) uncore: u32,
}

/// A part of a machine that a CPU is in.
pub(crate) type TopologyLevel = fn(&Cpu) -> u32;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) memory_bytes: u64,
    /// Sizes of pages in bytes, and how many there are.
    pub(crate) huge_pages: Vec<(u64, u64)>,
    /// By the number of the other node.
    pub(crate) distances: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cpus: BTreeMap<u32, Cpu>,
    pub(crate) nodes: BTreeMap<u32, Node>,
}

impl Machine {
    pub(crate) fn all(&self) -> CpuSet {
        self.cpus.keys().copied().collect()
    }

    /// The CPUs of a set that are in one of these parts.
    pub(crate) fn within(&self, cpus: &CpuSet, part: TopologyLevel, numbers: &[u32]) -> CpuSet {
        cpus.iter().filter(|cpu| self.cpus.get(cpu).is_some_and(|cpu| numbers.contains(&part(cpu)))).collect()
    }

    /// A set by its parts.
    pub(crate) fn parts(&self, cpus: &CpuSet, part: TopologyLevel) -> BTreeMap<u32, CpuSet> {
        let mut parts: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for cpu in cpus.iter().filter_map(|cpu| self.cpus.get(&cpu)) {
            parts.entry(part(cpu)).or_default().insert(cpu.id);
        }
        parts.into_iter().map(|(number, cpus)| (number, cpus.into_iter().collect())).collect()
    }

    pub(crate) fn count(&self, part: TopologyLevel) -> usize {
        self.cpus.values().map(part).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn cpus_per_core(&self) -> usize {
        self.cpus.len().checked_div(self.count(|cpu| cpu.core)).unwrap_or(1).max(1)
    }

    pub(crate) fn node_numbers(&self) -> Vec<u32> {
        self.nodes.keys().copied().collect()
    }
}

/// Reads below a root: `/`, or a test's.
pub(crate) fn read(root: &Path) -> Machine {
    let system = root.join("sys/devices/system");
    let nodes = nodes(root, &system);
    let home: BTreeMap<u32, u32> = nodes
        .keys()
        .flat_map(|node| {
            set(&system.join(format!("node/node{node}/cpulist"))).iter().map(|cpu| (cpu, *node)).collect::<Vec<_>>()
        })
        .collect();
    let online = set(&system.join("cpu/online"));
    let cpus = online.iter().map(|id| (id, cpu(&system, id, home.get(&id).copied().unwrap_or(0)))).collect();
    Machine { cpus, nodes }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

fn set(path: &Path) -> CpuSet {
    CpuSet::parse(&text(path)).unwrap_or_default()
}

fn cpu(system: &Path, id: u32, node: u32) -> Cpu {
    let dir = system.join(format!("cpu/cpu{id}"));
    let siblings = set(&dir.join("topology/thread_siblings_list"));
    Cpu {
        id,
        core: siblings.iter().next().unwrap_or(id),
        socket: text(&dir.join("topology/physical_package_id")).parse().unwrap_or(0),
        node,
        uncore: uncore(&dir).unwrap_or(node),
    }
}

/// The L3 cache, by the lowest CPU that shares it: the number of the cache is only unique within its socket.
fn uncore(dir: &Path) -> Option<u32> {
    let caches = std::fs::read_dir(dir.join("cache")).ok()?.flatten().map(|entry| entry.path());
    let last = caches.filter(|path| text(&path.join("level")) == "3").min()?;
    set(&last.join("shared_cpu_list")).iter().next()
}

fn nodes(root: &Path, system: &Path) -> BTreeMap<u32, Node> {
    let online = set(&system.join("node/online"));
    if online.is_empty() {
        // A kernel without NUMA support has one node.
        let memory_bytes = kilobytes(&text(&root.join("proc/meminfo")), "MemTotal:");
        let huge_pages = huge_pages(&root.join("sys/kernel/mm/hugepages"));
        return BTreeMap::from([(0, Node { memory_bytes, huge_pages, distances: BTreeMap::from([(0, 10)]) })]);
    }
    let numbers: Vec<u32> = online.iter().collect();
    let node = |number: &u32| {
        let dir = system.join(format!("node/node{number}"));
        let distances = text(&dir.join("distance"));
        let distances = distances.split_whitespace().filter_map(|number| number.parse().ok());
        let node = Node {
            memory_bytes: kilobytes(&text(&dir.join("meminfo")), "MemTotal:"),
            huge_pages: huge_pages(&dir.join("hugepages")),
            distances: numbers.iter().copied().zip(distances).collect(),
        };
        (*number, node)
    };
    numbers.iter().map(node).collect()
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.split_once(name)).map(|(_, rest)| rest);
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Directories like `hugepages-2048kB`.
fn huge_pages(dir: &Path) -> Vec<(u64, u64)> {
    let size = |path: std::path::PathBuf| {
        let size = path.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
        Some((size * 1024, text(&path.join("nr_hugepages")).parse().ok()?))
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut pages: Vec<(u64, u64)> = entries.filter_map(|entry| size(entry.path())).collect();
    pages.sort_unstable();
    pages
}

#[cfg(test)]
pub(crate) mod made_up {
    use super::*;

    /// So many sockets, nodes a socket, cores a node and threads a core, numbered as the kernel does: the second
    /// threads come after all first ones. A cache for each `per_cache` cores.
    pub(crate) fn machine(sockets: u32, nodes: u32, cores: u32, threads: u32, per_cache: u32) -> Machine {
        let all = sockets * nodes * cores;
        let cpu = |id: u32| {
            let core = id % all;
            let node = core / cores;
            (id, Cpu { id, core, socket: node / nodes, node, uncore: core / per_cache * per_cache })
        };
        let node = |number: u32| {
            let distance = |other: u32| match (number == other, number / nodes == other / nodes) {
                (true, _) => 10,
                (_, true) => 11,
                _ => 21,
            };
            let distances = (0..sockets * nodes).map(|other| (other, distance(other))).collect();
            (number, Node { memory_bytes: 10 << 30, huge_pages: Vec::new(), distances })
        };
        Machine { cpus: (0..all * threads).map(cpu).collect(), nodes: (0..sockets * nodes).map(node).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_topology_from_sysfs() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: String, text: &str| {
            let path = dir.path().join("sys/devices/system").join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        // Two sockets of two cores of two threads; a node and two caches a socket.
        for id in 0..8 {
            let core = id % 4;
            write(format!("cpu/cpu{id}/topology/thread_siblings_list"), &format!("{core},{}\n", core + 4));
            write(format!("cpu/cpu{id}/topology/physical_package_id"), &format!("{}\n", core / 2));
            write(format!("cpu/cpu{id}/cache/index2/level"), "2\n");
            write(format!("cpu/cpu{id}/cache/index3/level"), "3\n");
            write(format!("cpu/cpu{id}/cache/index3/shared_cpu_list"), &format!("{core},{}\n", core + 4));
        }
        write("cpu/online".to_string(), "0-7\n");
        write("node/online".to_string(), "0-1\n");
        for node in 0..2 {
            write(format!("node/node{node}/cpulist"), ["0-1,4-5\n", "2-3,6-7\n"][node]);
            write(format!("node/node{node}/distance"), ["10 21\n", "21 10\n"][node]);
            write(
                format!("node/node{node}/meminfo"),
                &format!("Node {node} MemTotal:  2048 kB\nNode 0 MemFree: 1 kB\n"),
            );
            write(format!("node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"), "3\n");
        }
        let mut want = made_up::machine(2, 1, 2, 2, 1);
        for node in want.nodes.values_mut() {
            (node.memory_bytes, node.huge_pages) = (2 << 20, vec![(2 << 20, 3)]);
        }
        assert_eq!(read(dir.path()), want);
        assert_eq!((want.cpus_per_core(), want.count(|cpu| cpu.socket)), (2, 2));
    }

    #[test]
    fn reads_this_machine() {
        let machine = read(Path::new("/"));
        assert!(!machine.cpus.is_empty() && !machine.nodes.is_empty(), "{machine:?}");
        assert!(machine.nodes.values().all(|node| node.memory_bytes > 0), "{machine:?}");
    }
}
