//! The node agent inside `up`, in namespaces of its own, with the demo image and the real kubectl. Needs root.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::kubectl::binaries;
use crate::support::{BINARY, tool};

/// A cluster of one node, in a network and mounts of its own.
struct Cluster {
    process: Child,
    /// The process of `up`, in whose namespaces commands are run.
    inside: String,
    dir: TempDir,
    cgroup: String,
}

/// A network of its own with a way out that leads nowhere, and no file of the machine's written to.
const ENTER: &str = "ip link set lo up && ip link add way type veth peer name out && \
    ip address add 192.0.2.10/24 dev way && ip link set way up && ip link set out up && \
    ip route add default via 192.0.2.1 && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
    mkdir -p /var/lib/cni && mount -t tmpfs none /var/lib/cni && exec \"$0\" \"$@\"";

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().expect("a folder");
        let name = dir.path().file_name().expect("a name").to_string_lossy().replace('.', "");
        let cgroup = format!("/tiphys-e2e-{name}");
        let mut process = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER, BINARY])
            .args(["up", "--port", "6443", "--node-name", "node", "--cgroup-root", &cgroup, "--data-dir"])
            .arg(dir.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is there");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.by_ref().any(|line| line.starts_with("ctrl-c stops it")), "the cluster does not start");
        std::thread::spawn(move || lines.for_each(drop));
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let inside = std::fs::read_to_string(children).expect("its children").trim().to_string();
        let cluster = Cluster { process, inside, dir, cgroup };
        cluster.until("a ready node", &["get", "node", "node", "-o", READY], |text| text == "True");
        cluster
    }

    fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.inside, "--net", "--mount", "--pid", program]);
        command.env("KUBECONFIG", self.dir.path().join("data/kubeconfig"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_by(&tool("kubectl-1.20/usr/bin/kubectl"), args)
    }

    fn run_by(&self, kubectl: &Path, args: &[&str]) -> Output {
        self.enter(&kubectl.to_string_lossy()).args(args).output().expect("kubectl is there")
    }

    fn kubectl(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn apply(&self, manifest: &str) {
        let file = self.dir.path().join("manifest.yaml");
        std::fs::write(&file, manifest).expect("a file");
        self.kubectl(&["apply", "-f", &file.to_string_lossy()]);
    }

    /// Asks until the answer is right.
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    fn until(&self, what: &str, args: &[&str], is_right: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let output = self.run(args);
            let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
            if output.status.success() && is_right(&text) {
                return text;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: {text} {}\n{}",
                String::from_utf8_lossy(&output.stderr),
                self.kubectl(&["describe", "pods"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_pod(&self, pod: &str, path: &str, expected: &str) {
        let path = format!("jsonpath={{{path}}}");
        self.until(pod, &["get", "pod", pod, "-o", &path], |text| text == expected);
    }

    fn pod(&self, pod: &str, path: &str) -> String {
        self.kubectl(&["get", "pod", pod, "-o", &format!("jsonpath={{{path}}}")])
    }

    /// What a container of the pod answers.
    fn fetch(&self, pod: &str, path: &str) -> String {
        self.fetch_url(&format!("http://{}:8080{path}", self.pod(pod, ".status.podIP")))
    }

    fn fetch_url(&self, url: &str) -> String {
        let script =
            "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())";
        let output = self.enter("python3").args(["-c", script, url]).output().expect("python3 is there");
        assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The folders below a control group of pods, in all hierarchies.
    fn cgroups(&self) -> Vec<PathBuf> {
        let pattern = format!("*{}*", self.cgroup);
        let output = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-path", &pattern]).output();
        let output = output.expect("find is there");
        String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
    }
}

impl Drop for Cluster {
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The namespace's processes are gone with its first one; their control groups are empty.
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut left = self.cgroups();
        while !left.is_empty() && Instant::now() < deadline {
            left.iter().rev().for_each(|dir| drop(std::fs::remove_dir(dir)));
            std::thread::sleep(Duration::from_millis(20));
            left = self.cgroups();
        }
    }
}

const READY: &str = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;

#[test]
fn a_deployment_runs_answers_and_goes_without_a_trace() {
    let cluster = Cluster::start();
    cluster.kubectl(&["create", "deployment", "web", "--image=tiphys.local/hello"]);
    cluster.kubectl(&["scale", "deployment", "web", "--replicas=3"]);
    let ready = "jsonpath={.status.readyReplicas}";
    cluster.until("three pods", &["get", "deployment", "web", "-o", ready], |text| text == "3");
    let names = cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]);
    for name in names.split(' ') {
        assert!(cluster.fetch(name, "/").starts_with(&format!("Hello from {name}\n")));
        let token = cluster.fetch(name, "/files/var/run/secrets/kubernetes.io/serviceaccount/token");
        assert_eq!(token.split('.').count(), 3, "{token}");
    }
    let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        assert!(events.contains(reason), "{reason}: {events}");
    }
    cluster.kubectl(&["delete", "deployment", "web"]);
    cluster.until("no pod", &["get", "pods", "-o", "name"], str::is_empty);
    let left: Vec<PathBuf> =
        cluster.cgroups().into_iter().filter(|dir| dir.to_string_lossy().contains("/pod")).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    let links = cluster.enter("ls").arg("/sys/class/net").output().expect("ls");
    assert!(!String::from_utf8_lossy(&links.stdout).contains("veth"), "{links:?}");
    let pods = std::fs::read_dir(cluster.dir.path().join("data/kubelet/pods")).expect("the folder");
    assert_eq!(pods.count(), 0);
}

const LIFE: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, file.txt: first}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {word: open}
---
apiVersion: v1
kind: Pod
metadata: {name: life, labels: {app: life}}
spec:
  terminationGracePeriodSeconds: 5
  hostAliases: [{ip: 192.0.2.99, hostnames: [far.example]}]
  initContainers:
  - {name: prepare, image: tiphys.local/hello, args: [exit, "0"]}
  - name: beside
    image: tiphys.local/hello
    args: [--port, "9090"]
    restartPolicy: Always
    startupProbe: {httpGet: {path: /healthz, port: 9090}, periodSeconds: 1, failureThreshold: 30}
  containers:
  - name: main
    image: tiphys.local/hello
    env:
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: WORD, valueFrom: {secretKeyRef: {name: hidden, key: word}}}
    - {name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: BOTH, value: "$(COLOR) $(WORD)"}
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: hidden, mountPath: /hidden}
    - {name: scratch, mountPath: /scratch}
    - {name: about, mountPath: /about}
    - {name: settings, mountPath: /one.txt, subPath: file.txt}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: hidden, secret: {secretName: hidden, defaultMode: 256}}
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
"#;

#[test]
fn a_pod_is_prepared_gets_its_volumes_and_is_followed() {
    let cluster = Cluster::start();
    cluster.apply(LIFE);
    cluster.wait_for_pod("life", r#".status.conditions[?(@.type=="Ready")].status"#, "True");
    assert_eq!(cluster.pod("life", ".status.phase"), "Running");
    assert_eq!(cluster.pod("life", ".status.initContainerStatuses[0].state.terminated.reason"), "Completed");
    assert_eq!(cluster.pod("life", ".status.initContainerStatuses[1].started"), "true");
    let page = cluster.fetch("life", "/");
    for line in ["COLOR=blue", "WORD=open", "WHO=life", "BOTH=blue open", "KUBERNETES_SERVICE_PORT=443"] {
        assert!(page.lines().any(|seen| seen == line), "{line}: {page}");
    }
    let files = [
        ("/settings/color", "blue"),
        ("/hidden/word", "open"),
        ("/about/labels", "app=\"life\""),
        ("/one.txt", "first"),
    ];
    for (path, expected) in files {
        assert_eq!(cluster.fetch("life", &format!("/files{path}")).trim(), expected, "{path}");
    }
    let hosts = cluster.fetch("life", "/files/etc/hosts");
    assert!(hosts.contains("192.0.2.99\tfar.example") && hosts.contains("\tlife\n"), "{hosts}");
    // A change reaches the running pod at once.
    cluster.kubectl(&["patch", "configmap", "settings", "-p", r#"{"data":{"color":"red"}}"#]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while cluster.fetch("life", "/files/settings/color").trim() != "red" {
        assert!(Instant::now() < deadline, "the change does not come");
    }
    cluster.kubectl(&["delete", "pod", "life"]);
}

const ENDS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  restartPolicy: Never
  containers: [{name: a, image: tiphys.local/hello, args: [exit, "0"]}, {name: b, image: tiphys.local/hello, args: [exit, "0"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: failed}
spec:
  restartPolicy: Never
  containers: [{name: a, image: tiphys.local/hello, args: [exit, "3"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  containers: [{name: a, image: tiphys.local/hello, args: [exit, "7"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: missing}
spec:
  containers: [{name: a, image: tiphys.local/none, imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: unwell}
spec:
  containers:
  - name: a
    image: tiphys.local/hello
    args: [--fail]
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 2}
    terminationMessagePath: /dev/termination-log
"#;

#[test]
fn pods_end_crash_and_are_started_again() {
    let cluster = Cluster::start();
    cluster.apply(ENDS);
    cluster.wait_for_pod("done", ".status.phase", "Succeeded");
    cluster.wait_for_pod("failed", ".status.phase", "Failed");
    assert_eq!(cluster.pod("failed", ".status.containerStatuses[0].state.terminated.exitCode"), "3");
    cluster.wait_for_pod("crashes", ".status.containerStatuses[0].state.waiting.reason", "CrashLoopBackOff");
    assert_eq!(cluster.pod("crashes", ".status.containerStatuses[0].lastState.terminated.exitCode"), "7");
    assert_eq!(cluster.pod("crashes", ".status.containerStatuses[0].restartCount"), "1");
    cluster.wait_for_pod("missing", ".status.containerStatuses[0].state.waiting.reason", "ErrImageNeverPull");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    cluster
        .until("a restart", &["get", "pod", "unwell", "-o", restarts], |text| text.parse::<u32>().is_ok_and(|n| n > 0));
    let events = ["get", "events", "-o", "jsonpath={.items[*].message}"];
    cluster.until("what the probe found", &events, |text| {
        text.contains("Liveness probe failed: HTTP probe failed with statuscode: 500")
            && text.contains("Container a failed liveness probe, will be restarted")
            && text.contains("Back-off restarting failed container")
    });
}

/// Logs, exec and port-forward by every kubectl there is: the older ones speak SPDY, the newer ones WebSocket.
#[test]
fn every_kubectl_reaches_into_containers() {
    let cluster = Cluster::start();
    cluster.kubectl(&["run", "web", "--image=tiphys.local/hello"]);
    cluster.wait_for_pod("web", ".status.phase", "Running");
    let log = cluster.until("a line of the log", &["logs", "web"], |text| !text.is_empty());
    let binaries = binaries();
    assert!(!binaries.is_empty());
    for ((major, minor), kubectl) in &binaries {
        let run = |args: &[&str]| cluster.run_by(kubectl, args);
        let shown = run(&["logs", "web", "--tail=1"]);
        let shown = String::from_utf8_lossy(&shown.stdout).trim().to_string();
        assert_eq!(Some(shown.as_str()), log.lines().last(), "{major}.{minor}");
        let code = run(&["exec", "web", "--", "/tiphys", "hello", "exit", "3"]).status.code();
        assert_eq!(code, Some(3), "{major}.{minor}");
        let version = run(&["exec", "web", "--", "/tiphys", "version"]);
        assert!(String::from_utf8_lossy(&version.stdout).starts_with("tiphys "), "{major}.{minor}: {version:?}");
        assert_eq!(cluster.forwarded(kubectl), "Hello from web", "{major}.{minor}");
    }
    let node = cluster.kubectl(&["get", "--raw", "/api/v1/nodes/node/proxy/metrics/resource"]);
    assert!(node.contains("container_cpu_usage_seconds_total{") && node.contains("pod=\"web\""), "{node}");
    let refused = cluster.run(&["logs", "web", "-c", "none"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("container none is not valid for pod web"),
        "{refused:?}"
    );
}

impl Cluster {
    /// The first line of what the pod `web` answers through a port-forward.
    fn forwarded(&self, kubectl: &Path) -> String {
        let mut command = self.enter(&kubectl.to_string_lossy());
        let command = command.args(["port-forward", "pod/web", ":8080"]).stdout(Stdio::piped());
        let mut forward = command.spawn().expect("kubectl is there");
        let mut lines = BufReader::new(forward.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let line = lines.next().unwrap_or_default();
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("0").to_string();
        let page = self.fetch_url(&format!("http://127.0.0.1:{port}/"));
        let _ = forward.kill();
        let _ = forward.wait();
        page.lines().next().unwrap_or_default().to_string()
    }
}

#[test]
fn a_machine_that_cannot_be_a_node_is_told_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let cases: [(&[&str], &[&str]); 2] = [
        (&["--node-name", "Bad_Name"], &["--node-name", "bad_name", "RFC 1123"]),
        (
            &["--container-runtime-endpoint", "/none.sock"],
            &["--container-runtime-endpoint /none.sock", "does not answer"],
        ),
    ];
    for (flags, expected) in cases {
        let namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", ENTER, BINARY, "up", "--port", "6443", "--data-dir"]);
        let output = command.arg(dir.path().join("data")).args(flags).output().expect("unshare is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && expected.iter().all(|word| said.contains(word)), "{flags:?}: {said}");
    }
}
