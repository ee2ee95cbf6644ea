//! A control plane of several servers on one etcd, whose processes a test starts one by one.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use api::Tree;

use super::case::{debians, success_output};
use super::cluster::{Cluster, ENTER, Runtime};
use crate::support::BINARY;

/// The servers, each with its data directory and its address.
pub const SERVERS: [(&str, &str); 3] = [("one", "192.0.2.11"), ("two", "192.0.2.12"), ("three", "192.0.2.13")];
const DEADLINE: Duration = Duration::from_secs(90);
/// The minor version that a debug build reports.
const VERSION: &str = "TIPHYS_TEST_MINOR_VERSION";

/// Etcd, in a network with an address for each server. The file lets the cluster begin; servers are started later.
const ETCD: &str = "for ip in 11 12 13; do ip address add 192.0.2.$ip/32 dev way; done && \
    { etcd --data-dir etcd --unsafe-no-fsync >etcd.log 2>&1 & } && \
    n=0 && until ETCDCTL_API=3 etcdctl endpoint health >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 100 ] || exit 1; sleep 0.1; done && \
    mkdir -p data && : > data/kubeconfig";

pub struct ControlPlane {
    pub cluster: Cluster,
}

impl ControlPlane {
    pub fn start() -> ControlPlane {
        let dir = tempfile::tempdir().expect("a directory");
        // A process that keeps the namespaces. A node's DNS listens at port 8080 of its address.
        let words = ["hello", "sleep", "1000000"].map(str::to_string);
        let cluster = Cluster::run(dir, Runtime::Embedded, &format!("{ENTER} && {ETCD}"), &words);
        cluster.enter();
        ControlPlane { cluster }
    }

    pub fn path(&self, name: &str) -> String {
        self.cluster.dir.path().join(name).display().to_string()
    }

    /// Starts a process of the binary, whose id is in a file, and which outlives this thread's command.
    pub fn spawn(&self, name: &str, words: &[&str]) {
        self.spawn_as(None, name, words);
    }

    /// The same of another minor version.
    pub fn spawn_as(&self, minor: Option<u32>, name: &str, words: &[&str]) {
        let script = "echo $$ > \"$0.pid\"; exec \"$@\" >>\"$0.log\" 2>&1";
        let mut command = self.cluster.command("sh");
        command.envs(minor.map(|minor| (VERSION, minor.to_string())));
        let command = command.args(["-c", script, name, BINARY]).args(words).stdin(Stdio::null());
        // Ended with the cluster's namespaces.
        drop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nsenter is there"));
    }

    pub fn signal(&self, name: &str, signal: &str) {
        let pid = fs::read_to_string(self.path(&format!("{name}.pid"))).expect("a file");
        let status = self.cluster.command("kill").args([signal, pid.trim()]).status();
        assert!(status.expect("kill is there").success(), "{name}");
    }

    /// A server, with the flags that it is started with.
    pub fn server(&self, at: usize, more: &[&str]) {
        self.server_as(None, at, more);
    }

    /// The same of another minor version.
    pub fn server_as(&self, minor: Option<u32>, at: usize, more: &[&str]) {
        let (name, address) = SERVERS[at];
        let own = ["server", "--data-dir", name, "--bind-address", address];
        self.spawn_as(minor, name, &[&own[..], more].concat());
        self.until(&format!("server {name}"), || {
            self.try_kubectl(at, &["get", "--raw", "/readyz"]).is_ok_and(|text| text == "ok")
        });
    }

    fn run(&self, at: usize, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.path(&format!("{}/kubeconfig", SERVERS[at].0)));
        command.args(args).stdin(Stdio::null()).output().expect("the program is there")
    }

    pub fn try_kubectl(&self, at: usize, args: &[&str]) -> Result<String, String> {
        let args = [&["--request-timeout=5s"], args].concat();
        let output = self.run(at, &debians().to_string_lossy(), &args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    #[track_caller]
    pub fn kubectl(&self, at: usize, args: &[&str]) -> String {
        self.try_kubectl(at, args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    pub fn tiphys(&self, at: usize, args: &[&str]) -> String {
        success_output(args, &self.run(at, BINARY, args))
    }

    pub fn object(&self, at: usize, path: &str) -> Tree {
        let text = self.try_kubectl(at, &["get", "--raw", path]).unwrap_or_default();
        api::json::decode(text.as_bytes()).unwrap_or_default()
    }

    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        stdx::wait::until(&format!("{what}: {}", self.logs()), DEADLINE, holds);
    }

    fn logs(&self) -> String {
        let names = SERVERS.map(|(name, _)| name).into_iter().chain(["agent"]);
        let end = |name: &str| {
            let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("{name}: {}\n", lines[lines.len().saturating_sub(5)..].join("\n"))
        };
        names.map(end).collect()
    }

    /// The addresses in the endpoints of the Service `kubernetes`.
    pub fn endpoints(&self, at: usize) -> Vec<String> {
        let slice = self.object(at, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes");
        let addresses = slice.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
        addresses.filter_map(|address| address.as_str().map(str::to_string)).collect()
    }

    pub fn holder(&self, at: usize, lease: &str) -> String {
        let lease = self.object(at, &format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}"));
        lease.str("spec.holderIdentity").to_string()
    }
}

/// Runs a command of this binary that must fail, and returns its error.
pub fn refused(control_plane: &ControlPlane, words: &[&str]) -> String {
    refused_as(control_plane, None, words)
}

/// The same of another minor version.
pub fn refused_as(control_plane: &ControlPlane, minor: Option<u32>, words: &[&str]) -> String {
    let mut command = control_plane.cluster.command(BINARY);
    command.envs(minor.map(|minor| (VERSION, minor.to_string())));
    let output = command.args(words).stdin(Stdio::null()).output().expect("nsenter is there");
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
