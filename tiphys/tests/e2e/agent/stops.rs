//! How `up` stops: with its pods, or without them on request; and the state that is left on the machine, also after a
//! kill.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stdx::wait::until;

use super::case::{Case, ChildProcess, debians};
use super::cluster::{ANY_DISK, Cluster, ENTER, IMAGE, NODE, Runtime, cgroup_of, make_images};
use crate::support::BINARY;

const DEADLINE: Duration = Duration::from_secs(60);

/// A machine that outlives its clusters. The file makes `Cluster::run` return without a cluster.
fn machine() -> Cluster {
    let dir = tempfile::tempdir().expect("a directory");
    make_images(&dir.path().join("data/runtime/images"));
    fs::write(dir.path().join("kubelet.yaml"), ANY_DISK).expect("a file");
    let script = format!("{ENTER} && touch data/kubeconfig && exec sleep 1000000");
    let machine = Cluster::run(dir, Runtime::Embedded, &script, &[]);
    machine.enter();
    machine
}

/// `up` on a machine.
struct UpProcess {
    process: ChildProcess,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

fn up(machine: &Cluster, flags: &[&str]) -> Command {
    let mut command = machine.command(BINARY);
    let data_dir = flags.iter().skip_while(|flag| **flag != "--data-dir").nth(1).map_or("", |dir| dir);
    // A cgroup for each cluster, by the name of its data directory.
    let suffix = data_dir.rsplit('/').next().filter(|name| *name != "data").unwrap_or_default();
    command.args(["up", "--node-name", NODE, "--cgroup-root", &format!("{}{suffix}", cgroup_of(&machine.dir))]);
    command.args(["--kubelet-config", "kubelet.yaml"]).args(flags);
    command
}

impl UpProcess {
    fn start(machine: &Cluster, flags: &[&str]) -> UpProcess {
        let log = fs::File::options().append(true).open(machine.dir.path().join("log")).expect("a file");
        let mut process = up(machine, flags).stdout(Stdio::piped()).stderr(log).spawn().expect("nsenter is there");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let is_ready = output.by_ref().map_while(Result::ok).any(|line| line.starts_with("ctrl-c stops it"));
        assert!(is_ready, "{}", machine.log());
        UpProcess { process: ChildProcess(process), output }
    }

    /// Signals the process itself, which nsenter has started.
    fn signal(&self, signal: &str) {
        let parent = self.process.0.id();
        let child = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("a child");
        assert!(Command::new("kill").args([signal, child.trim()]).status().expect("kill is there").success());
    }

    /// Waits for the end of the process, and returns its output.
    fn finish(mut self) -> String {
        let printed: Vec<String> = self.output.by_ref().map_while(Result::ok).collect();
        wait(&mut self.process.0);
        printed.join("\n")
    }
}

fn wait(process: &mut Child) {
    until("the end of the process", DEADLINE, || process.try_wait().expect("it is our child").is_some());
}

fn shell(machine: &Cluster, script: &str) -> String {
    let output = machine.command("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Each kind of trace that a node could leave, and the current ones.
fn traces(machine: &Cluster) -> Vec<(&'static str, String)> {
    let dir = machine.dir.path().display();
    let cgroups = machine.cgroups().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n");
    vec![
        // Zombies stay in the process table here: no process of the machine reaps them.
        (
            "process",
            shell(
                machine,
                "for p in /proc/[0-9]*; do grep -q '^State:.Z' $p/status || grep -E 'tiphys|busybox' $p/comm; done",
            ),
        ),
        ("mount", shell(machine, &format!("grep '{dir}/data' /proc/mounts || true"))),
        ("interface", shell(machine, "ip -o link | grep -E 'tiphys|veth' || true")),
        ("address", shell(machine, "ip -o address show dev lo | grep -vE ' 127.0.0.1/8 | ::1/128 ' || true")),
        ("table", shell(machine, "nft list tables")),
        ("state", shell(machine, "ls /run/tiphys 2>/dev/null || true")),
        ("cgroup", cgroups),
    ]
}

#[track_caller]
fn assert_nothing_is_left(machine: &Cluster) {
    let left: Vec<_> = traces(machine).into_iter().filter(|(_, found)| !found.is_empty()).collect();
    assert!(left.is_empty(), "{left:#?}\n{}", machine.log());
}

/// A pod with a volume in memory, a host port, and a container that exits on SIGTERM.
fn make_pod(all: &Case) {
    all.until("its account", || all.object("serviceaccounts", "default"), |account| !account.is_null());
    all.pod(
        "web",
        "volumes: [{name: v, emptyDir: {medium: Memory}}], containers: [{name: main, image: IMAGE, command: \
         [sh, -c, 'trap \"exit 0\" TERM; while true; do sleep 0.1; done'], ports: [{containerPort: 80, hostPort: 8080}], \
         volumeMounts: [{name: v, mountPath: /v}]}]",
    );
    all.until_ready("web");
}

#[test]
fn simulated_hosts_end_with_their_cluster() {
    let machine = machine();
    make_images(&machine.dir.path().join("data/nodes/node-2/agent/runtime/images"));
    let up = UpProcess::start(&machine, &["--nodes", "3"]);
    let all = Case::of_cluster(&machine);
    assert_eq!(all.kubectl(&["get", "nodes", "--output=name"]), "node/node\nnode/node-2\nnode/node-3");
    let hosts = || shell(&machine, "ip -o link | grep -c tiphys0-n");
    assert_eq!(hosts(), "3", "the bridge and two hosts");
    // A pod of a host gets its grace period.
    let mark = machine.dir.path().join("stopped");
    fs::create_dir(&mark).expect("a directory");
    all.until("its account", || all.object("serviceaccounts", "default"), |account| !account.is_null());
    all.pod(
        "graceful",
        &format!(
            "nodeName: node-2, volumes: [{{name: v, hostPath: {{path: {}}}}}], containers: [{{name: main, image: IMAGE, \
             command: [sh, -c, 'trap \"touch /v/mark; exit 0\" TERM; while true; do sleep 0.1; done'], volumeMounts: \
             [{{name: v, mountPath: /v}}]}}]",
            mark.display()
        ),
    );
    all.until_ready("graceful");
    up.signal("-INT");
    let printed = up.finish();
    assert!(printed.ends_with("stopped"), "{printed}");
    assert!(mark.join("mark").exists(), "it was not stopped gracefully");
    assert_nothing_is_left(&machine);

    // The hosts join again as the same nodes. After a kill, the next start and a reset find all their state.
    let identity = |node: &str| all_nodes(&machine, node);
    let up = UpProcess::start(&machine, &["--nodes", "3"]);
    let before = identity("node-2");
    up.signal("-KILL");
    up.finish();
    let up = UpProcess::start(&machine, &["--nodes", "3"]);
    assert_eq!(identity("node-2"), before);
    up.signal("-KILL");
    up.finish();
    assert!(reset(&machine, &["--force"]).output().expect("nsenter is there").status.success());
    assert_nothing_is_left(&machine);
}

/// Servers and members of etcd that a killed `up` has left are ended by the next one, which finds all objects.
#[test]
fn a_highly_available_cluster_starts_again_after_a_kill() {
    let machine = machine();
    let flags = ["--nodes", "3", "--servers", "3", "--data-dir", "data"];
    let up = UpProcess::start(&machine, &flags);
    Case::of_cluster(&machine).apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}");
    up.signal("-KILL");
    up.finish();
    let up = UpProcess::start(&machine, &flags);
    assert_eq!(kubectl(&machine, "data", &["get", "configmap", "kept", "--output=name"]), "configmap/kept");
    up.signal("-INT");
    assert!(up.finish().ends_with("stopped"), "{}", machine.log());
    assert_nothing_is_left(&machine);
    let other = ["--nodes", "3", "--data-dir", "data"];
    refused(self::up(&machine, &other), &["--servers", "has a cluster of 3 servers"]);
    assert!(reset(&machine, &["--force"]).output().expect("nsenter is there").status.success());
}

/// The identity of a node, once it is ready.
fn all_nodes(machine: &Cluster, name: &str) -> String {
    let all = Case::of_cluster(machine);
    let path = format!("/api/v1/nodes/{name}");
    let node = all.until("a ready node", || all.read(&path), |node| super::condition(node, "Ready") == "True");
    node.str("metadata.uid").to_string()
}

fn refused(mut command: Command, words: &[&str]) {
    let output = command.stdin(Stdio::null()).output().expect("nsenter is there");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.iter().all(|word| printed.contains(word)), "{printed}");
}

fn reset(machine: &Cluster, flags: &[&str]) -> Command {
    let mut command = machine.command(BINARY);
    command.args(["reset", "--data-dir", "data"]).args(flags);
    command
}

#[test]
fn pods_stop_with_up_and_restart_with_the_next() {
    let machine = machine();
    let first = UpProcess::start(&machine, &["--data-dir", "data"]);
    let all = Case::of_cluster(&machine);
    make_pod(&all);
    let before = traces(&machine);
    for (kind, found) in before.iter().filter(|(kind, _)| *kind != "address") {
        assert!(!found.is_empty(), "the pod has no {kind}: the test would see nothing");
    }
    let data = machine.dir.path().join("data");
    let data = data.to_str().expect("text");
    refused(
        up(&machine, &["--data-dir", "other", "--port", "6444", "--cluster-cidr", "10.42.128.0/17"]),
        &[data, "pid"],
    );
    refused(up(&machine, &["--data-dir", "./data", "--port", "6444"]), &[data, "pid", "--data-dir"]);
    refused(reset(&machine, &["--force"]), &[data, "pid"]);

    first.signal("-INT");
    let printed = first.finish();
    for words in ["stopping 1 pods", "✓ default/web", "stopped"] {
        assert!(printed.contains(words), "{printed}");
    }
    assert_nothing_is_left(&machine);

    let second = UpProcess::start(&machine, &["--data-dir", "data"]);
    let all = Case::of_cluster(&machine);
    let pod = all.until_pod("web", "its return", |pod| {
        pod.list("status.containerStatuses").first().is_some_and(|one| one.int("restartCount") > Some(0))
    });
    assert_eq!(pod.str("spec.nodeName"), NODE);
    all.until_ready("web");
    // A kill leaves all state; a reset removes it.
    second.signal("-KILL");
    drop(second.finish());
    refused(reset(&machine, &[]), &["--force"]);
    let output = reset(&machine, &["--force"]).output().expect("nsenter is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_is_left(&machine);
    assert!(!fs::exists(data).expect("a look"), "the data directory is gone");
    assert_eq!(shell(&machine, "ls /var/log/pods"), "");
}

#[test]
fn keep_pods_keeps_them_running_once() {
    let machine = machine();
    let first = UpProcess::start(&machine, &["--data-dir", "data", "--keep-pods"]);
    make_pod(&Case::of_cluster(&machine));
    first.signal("-TERM");
    let printed = first.finish();
    assert!(printed.contains("its pods keep running"), "{printed}");
    assert!(!machine.cgroups().is_empty());

    // The same directory by another path: the pod is taken over, not created again.
    let name = machine.dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    let flags = ["--data-dir", &format!("../{name}/data"), "--kubelet-arg=max-pods=7"];
    let second = UpProcess::start(&machine, &flags);
    let all = Case::of_cluster(&machine);
    all.until(
        "the flag of the kubelet",
        || all.read("/api/v1/nodes/node").str("status.capacity.pods").to_string(),
        |pods| pods == "7",
    );
    // The images of the running cluster, from any working directory.
    assert!(shell(&machine, &format!("cd / && {BINARY} images list")).contains("suite.local/busybox"));
    let pod = all.until_ready("web");
    assert_eq!(pod.list("status.containerStatuses").first().and_then(|one| one.int("restartCount")), Some(0));
    assert_eq!(shell(&machine, "ls -d /run/tiphys/*/sandboxes/* | wc -l"), "1");
    second.signal("-INT");
    second.finish();
    assert_nothing_is_left(&machine);
}

/// `TIPHYS_STORE_OBJECTS` of CONTRIBUTING: so many objects move with the pods.
#[test]
fn pods_run_on_while_the_store_moves_to_etcd_and_back() {
    let count: usize = std::env::var("TIPHYS_STORE_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let machine = machine();
    let etcd = machine.command("etcd").args(["--data-dir", "etcd", "--unsafe-no-fsync"]).stderr(Stdio::null()).spawn();
    let _etcd = ChildProcess(etcd.expect("etcd is there"));
    let url = "http://127.0.0.1:2379";
    let copy = |from: &str, to: &str| {
        let output = machine.command(BINARY).args(["store", "copy", "--from", from, "--to", to]).output();
        let output = output.expect("nsenter is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let flags = ["--data-dir", "data", "--keep-pods"];
    let of_etcd = format!("--apiserver-arg=etcd-servers={url}");
    let up = UpProcess::start(&machine, &flags);
    let all = Case::of_cluster(&machine);
    make_pod(&all);
    for number in 0..count {
        all.apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: moved-{number}}}}}"));
    }
    let identity = |all: &Case| {
        let status = all.until_ready("web").list("status.containerStatuses")[0].clone();
        (status.str("containerID").to_string(), status.str("state.running.startedAt").to_string())
    };
    let before = identity(&all);
    let moved = |all: &Case| all.kubectl(&["get", "configmaps", "--output=name"]).matches("/moved-").count();
    up.signal("-TERM");
    up.finish();
    copy("data", url);
    fs::rename(machine.dir.path().join("data/store"), machine.dir.path().join("data/store.old")).expect("renamed");
    let up = UpProcess::start(&machine, &[&flags[..], &[&of_etcd]].concat());
    let all = Case::of_cluster(&machine);
    assert_eq!((identity(&all), moved(&all)), (before.clone(), count));
    up.signal("-TERM");
    up.finish();
    copy(url, "data");
    let up = UpProcess::start(&machine, &["--data-dir", "data"]);
    let all = Case::of_cluster(&machine);
    assert_eq!((identity(&all), moved(&all)), (before, count));
    up.signal("-INT");
    up.finish();
}

#[test]
fn second_signal_stops_immediately() {
    let machine = machine();
    let up = UpProcess::start(&machine, &["--data-dir", "data"]);
    let all = Case::of_cluster(&machine);
    all.until("its account", || all.object("serviceaccounts", "default"), |account| !account.is_null());
    // The container ignores signals, and has a long grace period.
    all.pod("deaf", "terminationGracePeriodSeconds: 3600, containers: [{name: main, image: IMAGE}]");
    all.until_ready("deaf");
    up.signal("-INT");
    let mut up = up;
    let line = up.output.by_ref().map_while(Result::ok).find(|line| line.contains("stopping 1 pods"));
    assert!(line.is_some_and(|line| line.contains("ctrl-c again")));
    up.signal("-INT");
    let printed = up.finish();
    assert!(printed.contains("stopped immediately"), "{printed}");
    let output = reset(&machine, &["--force"]).output().expect("nsenter is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_is_left(&machine);
}

/// Runs kubectl against one of several clusters of a machine.
#[track_caller]
fn kubectl(machine: &Cluster, data_dir: &str, args: &[&str]) -> String {
    let mut command = machine.command(debians().to_str().expect("text"));
    command.env("KUBECONFIG", machine.dir.path().join(data_dir).join("kubeconfig"));
    let output = command.args(args).stdin(Stdio::null()).output().expect("nsenter is there");
    assert!(output.status.success(), "{data_dir}: {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A pod that serves the name of its cluster; its address.
fn serving_pod(machine: &Cluster, data_dir: &str) -> String {
    let account = format!(
        "n=0; until {0} get serviceaccount default; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done",
        debians().display()
    );
    let mut wait = machine.command("sh");
    wait.env("KUBECONFIG", machine.dir.path().join(data_dir).join("kubeconfig"));
    assert!(wait.args(["-c", &account]).output().expect("a shell").status.success());
    let script = format!(
        "trap 'exit 0' TERM; mkdir /www && echo {data_dir} >/www/name && httpd -p 80 -h /www; while true; do sleep 0.1; done"
    );
    let run = ["run", "web", "--restart=Never", &format!("--image={IMAGE}"), "--command", "--", "sh", "-c", &script];
    kubectl(machine, data_dir, &run);
    kubectl(machine, data_dir, &["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
    kubectl(machine, data_dir, &["expose", "pod", "web", "--port=80"]);
    kubectl(machine, data_dir, &["get", "pod", "web", "--output=jsonpath={.status.podIP}"])
}

#[track_caller]
fn assert_serves(machine: &Cluster, address: &str, name: &str) {
    let script = format!(
        "n=0; until curl -sf --max-time 2 http://{address}/name; do n=$((n+1)); [ $n -lt 20 ] || exit 1; sleep 0.2; done"
    );
    assert_eq!(shell(machine, &script), name);
}

/// The pod of a cluster through its Service: by the address from the machine, and by its name from the pod.
#[track_caller]
fn assert_serves_by_service(machine: &Cluster, data_dir: &str) {
    let address = kubectl(machine, data_dir, &["get", "service", "web", "--output=jsonpath={.spec.clusterIP}"]);
    assert_serves(machine, &address, data_dir);
    // The image's static wget crashes where it resolves names.
    let script = "n=0; until nslookup -type=a web.default.svc.cluster.local; do n=$((n+1)); [ $n -lt 20 ] || exit 1; \
                  sleep 0.2; done";
    let resolved = kubectl(machine, data_dir, &["exec", "web", "--", "sh", "-c", script]);
    assert!(resolved.lines().any(|line| line.starts_with("Address") && line.ends_with(&address)), "{resolved}");
}

#[test]
fn clusters_run_side_by_side() {
    let machine = machine();
    for name in ["other", "third"] {
        make_images(&machine.dir.path().join(name).join("runtime/images"));
    }
    let first = UpProcess::start(&machine, &["--data-dir", "data"]);
    let second = UpProcess::start(&machine, &["--data-dir", "other", "--port", "6444"]);
    let addresses = ["data", "other"].map(|data_dir| serving_pod(&machine, data_dir));
    assert!(addresses[0].starts_with("10.42.") && addresses[1].starts_with("10.43."), "{addresses:?}");
    assert_serves(&machine, &addresses[0], "data");
    assert_serves(&machine, &addresses[1], "other");
    assert!(kubectl(&machine, "other", &["get", "service", "kubernetes"]).contains("10.97.0.1"));
    for data_dir in ["data", "other"] {
        assert_serves_by_service(&machine, data_dir);
    }

    // The pods of a killed cluster keep their network.
    second.signal("-KILL");
    drop(second.finish());
    let third = UpProcess::start(&machine, &["--data-dir", "third", "--port", "6445"]);
    let address = serving_pod(&machine, "third");
    assert!(address.starts_with("10.44."), "{address}");
    assert_serves(&machine, &address, "third");
    assert_serves(&machine, &addresses[1], "other");
    assert_serves(&machine, &addresses[0], "data");
    for data_dir in ["data", "third"] {
        assert_serves_by_service(&machine, data_dir);
    }

    // Stopping one cluster does not affect the others.
    first.signal("-INT");
    first.finish();
    assert_serves_by_service(&machine, "third");
    assert_serves(&machine, &addresses[1], "other");
    let second = UpProcess::start(&machine, &["--data-dir", "other", "--port", "6444"]);
    assert_eq!(kubectl(&machine, "other", &["get", "pod", "web", "--output=jsonpath={.status.podIP}"]), addresses[1]);
    assert_serves(&machine, &address, "third");
    for up in [second, third] {
        up.signal("-INT");
        up.finish();
    }
    assert_nothing_is_left(&machine);
}
