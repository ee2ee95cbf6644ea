//! Users' workflows with the real kubectl on a cluster of one node: on the built-in runtime, and on Debian's
//! containerd. Each cluster is started once for all cases, and each case has a namespace. Needs root.

mod applications;
mod case;
pub mod cluster;
mod control_plane;
mod extension;
mod families;
mod faults;
mod first_steps;
mod helm;
mod image_files;
mod in_cluster;
mod join_mistakes;
mod joins;
mod leaving;
mod life;
mod machine;
mod network;
mod node;
mod node_commands;
mod nodes;
mod other_networks;
mod own_dns;
mod pinning;
mod probes;
mod proxies;
mod pulls;
mod resources;
mod rollouts;
mod scale;
mod security;
mod servers;
mod service_types;
mod services;
mod static_pods;
mod stops;
mod streams;
mod tunnels;
mod up_servers;
mod versions;
mod volumes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use case::{Case, condition};
use cluster::{Cluster, ENTER, Runtime, alone};
use stdx::sync::Mutex;

/// A case; it panics on a failure.
pub type CaseFn = fn(&Case);

/// Cases with names.
pub type Table = &'static [(&'static str, CaseFn)];

const TABLES: [Table; 16] = [
    // Cases with the longest waits come first.
    life::CASES,
    probes::CASES,
    streams::CASES,
    applications::CASES,
    in_cluster::CASES,
    extension::CASES,
    helm::CASES,
    service_types::CASES,
    services::CASES,
    services::POLICY_CASES,
    pulls::CASES,
    volumes::CASES,
    network::CASES,
    security::CASES,
    node::CASES,
    resources::CASES,
];

/// So many cases go on at once: most of them wait most of the time.
const AT_ONCE: usize = 8;

/// Runs all cases of some tables; returns the failures.
fn failures(cluster: &Cluster, tables: &[Table]) -> Vec<String> {
    let chosen = std::env::var("TIPHYS_TEST_CASE").unwrap_or_default();
    let cases: Vec<&(&str, CaseFn)> =
        tables.iter().copied().flatten().filter(|case| case.0.contains(&chosen)).collect();
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

/// Runs all cases, and checks that nothing is left of them.
fn suite(runtime: Runtime) {
    let cluster = Cluster::up(runtime);
    check(&cluster, &TABLES);
    // A new connection: the server has closed the idle one meanwhile.
    leaves_nothing(&Case::of_cluster(&cluster));
}

/// All cases of some tables, when the node is ready.
fn check(cluster: &Cluster, tables: &[Table]) {
    let all = Case::of_cluster(cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let failures = failures(cluster, tables);
    assert!(failures.is_empty(), "{failures:#?}\n{}", cluster.log());
}

fn leaves_nothing(all: &Case) {
    all.kubectl(&["delete", "deployments,statefulsets,daemonsets,jobs,pods", "--all", "--all-namespaces", "--now"]);
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

/// The cases of services, with another mode of the proxy.
#[test]
fn services_with_iptables() {
    let cluster = Cluster::up_with(Runtime::Embedded, &["--proxy-mode", "iptables"]);
    check(&cluster, &[services::CASES, services::POLICY_CASES, service_types::CASES, applications::CASES]);
    assert_eq!(proxies::mode(&cluster), "iptables");
}

/// Without policies for pods: endpoints see the address of the node, which may always connect.
#[test]
fn services_with_userspace() {
    let cluster = Cluster::up_with(Runtime::Embedded, &["--proxy-mode", "userspace"]);
    check(&cluster, &[services::CASES, service_types::CASES, applications::CASES]);
    assert_eq!(proxies::mode(&cluster), "userspace");
}

#[test]
fn a_machine_without_cgroups_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    // From the last mount to the first one: some are mounted below others.
    let unmount = "for m in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts | sort -r); do umount -l $m; done";
    let mut command = alone(&format!("{ENTER} && {unmount} && exec \"$0\" \"$@\""));
    command.args(["up", "--port", "6443", "--data-dir"]);
    let output = command.arg(dir.path().join("data")).output().expect("unshare is there");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("no cgroup file system is mounted"), "{text}");
    assert_eq!(text.matches("--disable-agent").count(), 1, "{text}");
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
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && expected.iter().all(|word| text.contains(word)), "{flags:?}: {text}");
    }
}
