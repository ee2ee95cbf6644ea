//! Faults of a node: a killed kubelet or runtime, no API server, a full disk, a registry, a hook or a socket that
//! hangs, and unusually many probes and containers. Needs root. `TIPHYS_SEEDS` is the number of runs of random tests.

mod api_gone;
mod crowds;
mod hangs;
mod kills;
mod pressure;
mod shutdown;
mod world;

use std::fs;

use crate::support::BINARY;
use world::{PODS, Process, World};

/// A configuration by which no pod has to go however full disks are.
const UNDEFENDED: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
    evictionHard: {memory.available: 100Mi}\n";

/// Starts the kubelet as a separate process beside `up --disable-agent`; `more` are further lines of its configuration.
fn start_kubelet(world: &World, more: &str) -> Process {
    fs::create_dir_all(world.dir.path().join("data/kubelet")).expect("a directory");
    let config = format!(
        "{UNDEFENDED}cgroupRoot: {}\n{more}\
         authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {ca}}}}}\n",
        world.cgroup(),
        ca = world.path("data/pki/ca.crt"),
    );
    fs::write(world.path("kubelet.yaml"), config).expect("a file");
    let (root, kubeconfig, config) =
        (world.path("data/kubelet"), world.path("data/kubeconfig"), world.path("kubelet.yaml"));
    let words = ["kubelet", "--kubeconfig", &kubeconfig, "--config", &config, "--hostname-override", "node"];
    let agent = world.start(BINARY, &[&words[..], &["--root-dir", &root, "--node-ip", "192.0.2.10"]].concat(), "");
    world.until_ready_node();
    agent
}

/// Records each start in a volume, and exits on SIGTERM. The demo image has no shell; that of the machine is mounted.
const NOTING: &str = "echo start >> /data/starts; trap 'exit 0' TERM; /host/busybox sleep 1000000 & wait";

fn noting_pod(name: &str) -> String {
    shell_pod(name, NOTING, "")
}

/// A pod of one container that runs a script; `more` are further lines of the container.
fn shell_pod(name: &str, script: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: faults}}}}
spec:
  terminationGracePeriodSeconds: 3
  containers:
  - name: main
    image: tiphys.local/hello
    imagePullPolicy: IfNotPresent
    command: [/host/busybox, sh, -c, "{script}"]
    volumeMounts: [{{name: host, mountPath: /host, readOnly: true}}, {{name: data, mountPath: /data}}]
    {more}
  volumes: [{{name: host, hostPath: {{path: /bin}}}}, {{name: data, emptyDir: {{}}}}]
"#
    )
}

fn starts(world: &World, uid: &str) -> usize {
    world.file_of(uid, "kubernetes.io~empty-dir/data/starts").lines().count()
}

fn pod_path(name: &str) -> String {
    format!("{PODS}/{name}")
}
