//! `tiphys bench` cleans up behind itself.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
fn runs_bare_pod() -> bool {
    cgroups().iter().any(|path| path.ends_with("tiphys-floor") || path.join("floor").exists())
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
fn an_interrupted_benchmark_leaves_no_cgroup() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = fs::File::create(dir.path().join("log")).expect("a file");
    let mut bench = Command::new(BINARY);
    let bench = bench.args(["bench", "runtime", "--quick", "--dir"]).arg(dir.path().join("work"));
    let mut bench = bench.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts");
    let log = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    let deadline = Instant::now() + DEADLINE;
    while !runs_bare_pod() {
        assert!(bench.try_wait().expect("it is our child").is_none(), "{}", log());
        assert!(Instant::now() < deadline, "no pod in time: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &bench.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    while bench.try_wait().expect("it is our child").is_none() {
        assert!(Instant::now() < deadline, "it does not end: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(cgroups(), Vec::<PathBuf>::new(), "{}", log());
    assert_eq!(fs::read_dir(dir.path().join("work")).expect("its directory").count(), 0, "{}", log());
}
