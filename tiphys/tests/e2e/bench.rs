//! `tiphys bench` cleans up behind itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stdx::wait::{LazyDescription, until_ok};

use crate::support::BINARY;

const DEADLINE: Duration = Duration::from_secs(120);

/// The cgroups of benchmarks, in all hierarchies.
fn cgroups() -> Vec<PathBuf> {
    let below = |dir: &PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let root = PathBuf::from("/sys/fs/cgroup");
    let hierarchies: Vec<PathBuf> = below(&root).filter(|path| path.is_dir()).collect();
    let all = hierarchies.iter().flat_map(below).chain(below(&root));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("tiphys-bench") || name.starts_with("tiphys-floor")
    };
    all.filter(is_ours).collect()
}

/// Whether a pod runs that measures the kernel alone, without any runtime that removes it.
fn runs_bare_pod(path: &Path) -> bool {
    path.ends_with("tiphys-floor") || path.join("floor").exists()
}

/// Whether the hosts of servers run.
fn runs_servers(path: &Path) -> bool {
    let hosts = path.join("servers/tiphys-hosts0");
    fs::read_dir(hosts).is_ok_and(|hosts| hosts.flatten().any(|host| host.path().ends_with("node-1")))
}

/// One after the other: all benchmarks have the same cgroup.
#[test]
fn interrupted_benchmarks_leave_no_cgroup() {
    leaves_nothing(&["runtime"], runs_bare_pod);
    leaves_nothing(&["nodes", "servers"], runs_servers);
}

/// Interrupts a benchmark when one of its cgroups shows that it is at work.
fn leaves_nothing(names: &[&str], is_at_work: fn(&Path) -> bool) {
    let dir = tempfile::tempdir().expect("a directory");
    // Of benchmarks that run beside this one.
    let others = cgroups();
    let log = fs::File::create(dir.path().join("log")).expect("a file");
    let mut bench = Command::new(BINARY);
    let (first, parts) = names.split_first().expect("a name");
    let bench = bench.args(["bench", first, "--quick", "--dir"]).arg(dir.path().join("work")).args(parts);
    let mut bench = bench.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts");
    let log = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    until_ok("a cgroup of the benchmark", DEADLINE, || {
        assert!(bench.try_wait().expect("it is our child").is_none(), "{}", log());
        let works = cgroups().iter().any(|path| !others.contains(path) && is_at_work(path));
        if works { Ok(()) } else { Err(LazyDescription(log)) }
    });
    let killed = Command::new("kill").args(["-INT", &bench.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    until_ok("the end of the benchmark", DEADLINE, || {
        bench.try_wait().expect("it is our child").ok_or(LazyDescription(log))
    });
    let left: Vec<PathBuf> = cgroups().into_iter().filter(|path| !others.contains(path)).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "{}", log());
    assert_eq!(fs::read_dir(dir.path().join("work")).expect("its directory").count(), 0, "{}", log());
}
