//! What users do with the real kubectl on a cluster of one node: on the built-in runtime, and on Debian's containerd.
//! Each cluster is started once for all cases, and each case has a namespace. Needs root.

mod case;
pub mod cluster;
mod joins;
mod life;
mod network;
mod node;
mod pinning;
mod probes;
mod pulls;
mod resources;
mod security;
mod services;
mod static_pods;
mod stops;
mod streams;
mod volumes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use case::{Case, condition};
use cluster::{Cluster, ENTER, Runtime, alone};
use stdx::sync::Mutex;

/// What a case does; it panics where something is not as it should be.
pub type Do = fn(&Case);

const TABLES: [&[(&str, Do)]; 10] = [
    // Those that wait longest first.
    life::CASES,
    probes::CASES,
    streams::CASES,
    services::CASES,
    pulls::CASES,
    volumes::CASES,
    network::CASES,
    security::CASES,
    node::CASES,
    resources::CASES,
];

/// So many cases go on at once: most of them wait most of the time.
const AT_ONCE: usize = 8;

/// Runs all cases; what failed, in words.
fn failures(cluster: &Cluster) -> Vec<String> {
    let chosen = std::env::var("TIPHYS_TEST_CASE").unwrap_or_default();
    let cases: Vec<&(&str, Do)> = TABLES.iter().copied().flatten().filter(|case| case.0.contains(&chosen)).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                cluster.enter();
                while let Some((name, run)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (started, done) =
                        (Instant::now(), catch_unwind(AssertUnwindSafe(|| run(&Case::new(cluster, name)))));
                    println!(
                        "{:5.1} s  {name}{}",
                        started.elapsed().as_secs_f32(),
                        if done.is_err() { "  FAILED" } else { "" }
                    );
                    if done.is_err() {
                        failures.lock().push(name.to_string());
                    }
                }
            });
        }
    });
    failures.into_inner()
}

/// All cases, and that nothing is left of them.
fn suite(runtime: Runtime) {
    let cluster = Cluster::up(runtime);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let failures = failures(&cluster);
    assert!(failures.is_empty(), "{failures:#?}\n{}", cluster.log());
    // Another connection: the server has closed that one meanwhile, since nothing was asked for long.
    leaves_nothing(&Case::of_cluster(&cluster));
}

fn leaves_nothing(all: &Case) {
    all.kubectl(&["delete", "deployments,jobs,pods", "--all", "--all-namespaces", "--now"]);
    // The deletion may take longer than the server waits for the first request of a connection.
    let all = &Case::of_cluster(all.cluster);
    all.until("no pod", || all.read("/api/v1/pods").list("items").len(), |left| *left == 0);
    let cluster = all.cluster;
    let of_pods =
        || cluster.cgroups().into_iter().filter(|dir| dir.to_string_lossy().contains("/pod")).collect::<Vec<_>>();
    all.until("no cgroup of a pod", of_pods, Vec::is_empty);
    // Of the cluster's own network: /sys shows the network of the process that mounted it, which is the machine's.
    let links = || {
        let output = cluster.command("cat").arg("/proc/net/dev").output().expect("cat");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    all.until("no link of a pod", links, |seen| !seen.contains("veth"));
    let directories =
        || std::fs::read_dir(cluster.dir.path().join("data/kubelet/pods")).expect("the directory").count();
    all.until("no directory of a pod", directories, |left| *left == 0);
}

#[test]
fn on_the_built_in_runtime() {
    suite(Runtime::Embedded);
}

#[test]
fn on_containerd() {
    suite(Runtime::Containerd);
}

#[test]
fn a_machine_without_cgroups_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    // From the last mount to the first one: some are mounted below others.
    let unmount = "for m in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts | sort -r); do umount -l $m; done";
    let mut command = alone(&format!("{ENTER} && {unmount} && exec \"$0\" \"$@\""));
    command.args(["up", "--port", "6443", "--data-dir"]);
    let output = command.arg(dir.path().join("data")).output().expect("unshare is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no cgroup file system is mounted"), "{said}");
    assert_eq!(said.matches("--disable-agent").count(), 1, "{said}");
}

#[test]
fn unsuitable_machines_are_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], &[&str]); 2] = [
        (&["--node-name", "Bad_Name"], &["--node-name", "bad_name", "RFC 1123"]),
        (
            &["--container-runtime-endpoint", "/none.sock"],
            &["--container-runtime-endpoint /none.sock", "does not respond"],
        ),
    ];
    for (flags, expected) in cases {
        let mut command = alone(&format!("{ENTER} && exec \"$0\" \"$@\""));
        command.args(["up", "--port", "6443", "--data-dir"]);
        let output = command.arg(dir.path().join("data")).args(flags).output().expect("unshare is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && expected.iter().all(|word| said.contains(word)), "{flags:?}: {said}");
    }
}
