//! Counts what a pod may leave behind: cgroups, processes, mounts, namespaces, devices, rules, addresses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Node, leases};

/// The number of objects of each kind.
pub type Counts = BTreeMap<&'static str, usize>;

/// Counts while the runtime is running, with or without pods.
pub fn count(node: &Node) -> Counts {
    let directory = node.directory.path().to_string_lossy().into_owned();
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", node.runtime_pid())).unwrap();
    let held = held_by(node.runtime_pid());
    [
        ("processes", node.processes().len()),
        ("cgroups", groups(node)),
        ("mounts", mounts.lines().filter(|line| line.contains(&directory) || line.contains(" nsfs ")).count()),
        ("namespaces", namespaces(node)),
        ("namespaces and processes that the daemon holds", held),
        ("devices", output("ip", &["-o", "link"]).lines().filter(|line| line.contains("veth")).count()),
        ("elements of rules", elements()),
        ("addresses", leases(&node.path("root/network/networks")).len()),
        ("results of the pod network", entries(&node.path("cni/results"))),
        ("snapshots", entries(&node.path("root/images/snapshots"))),
        ("records", entries(&node.path("state/sandboxes"))),
    ]
    .into()
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, |entries| entries.count())
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The cgroups below the test's own. That of the shims exists as long as the runtime.
fn groups(node: &Node) -> usize {
    let roots =
        fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|e| e.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
    let below = roots.map(|root| root.join(node.cgroup().trim_start_matches('/')));
    let directories = below.flat_map(|group| fs::read_dir(group).into_iter().flatten().flatten());
    directories.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()) && e.file_name() != "shims").count()
}

/// The namespaces of the test's processes that differ from this process's.
fn namespaces(node: &Node) -> usize {
    let of = |pid: &str| -> Vec<PathBuf> {
        let directory = fs::read_dir(format!("/proc/{pid}/ns")).into_iter().flatten().flatten();
        directory.filter_map(|e| fs::read_link(e.path()).ok()).collect()
    };
    let own = of("thread-self");
    let mut found: Vec<_> = node.processes().iter().flat_map(|pid| of(&pid.to_string())).collect();
    found.retain(|namespace| !own.contains(namespace));
    found.sort();
    found.dedup();
    found.len()
}

/// The open files of a process, which would keep namespaces and processes alive.
fn held_by(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter_map(|e| fs::read_link(e.path()).ok());
    let names: Vec<_> = files.map(|f| f.to_string_lossy().into_owned()).collect();
    let kinds = ["net:[", "mnt:[", "pid:[", "ipc:[", "uts:[", "user:[", "cgroup:[", "anon_inode:[pidfd]", "pidfd:"];
    names.iter().filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).count()
}

/// The addresses and ports in the sets and maps of the nftables table.
fn elements() -> usize {
    let text = output("nft", &["list", "ruleset"]);
    let from = |text: &str| {
        text.split("elements = {").skip(1).map(|set| set.split('}').next().unwrap_or("").split(',').count()).sum()
    };
    from(&text)
}
