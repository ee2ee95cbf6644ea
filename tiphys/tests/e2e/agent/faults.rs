//! Faults of a machine that has joined: its agent is killed while rules change, and its clock is an hour off.

use std::fs;
use std::process::{Command, Stdio};

use super::case::{Case, ChildProcess, condition, success_output};
use super::cluster::{ADDRESS, ANY_DISK, Cluster, ENTER, Runtime, cgroup_of, make_images};
use super::proxies::kill;
use super::services::client;
use super::up_servers::rounds;
use crate::clocks::ShiftedClocks;
use crate::support::BINARY;

/// A server without workload, and the arguments with which a machine joins it.
fn server() -> (Cluster, Vec<String>) {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["server", "--data-dir", "data", "--advertise-address", ADDRESS].map(str::to_string);
    let cluster = Cluster::run(dir, Runtime::Embedded, ENTER, &words);
    cluster.enter();
    let mut token = Command::new(BINARY);
    let token = token.args(["token", "create", "--print-join-command"]).env("KUBECONFIG", cluster.kubeconfig());
    let join = success_output(&["token", "create"], &token.output().expect("the binary runs"));
    let words = join.split_whitespace().skip(1).map(str::to_string).collect();
    (cluster, words)
}

/// Runs the agent of a node, whose data directory has its name.
fn agent(cluster: &Cluster, join: &[String], node: &str, clocks: Option<&ShiftedClocks>) -> ChildProcess {
    let dir = cluster.dir.path();
    if !dir.join(node).exists() {
        make_images(&dir.join(node).join("runtime/images"));
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}\n\
             nodeStatusUpdateFrequency: 1s\n{ANY_DISK}",
            cgroup_of(&cluster.dir)
        );
        fs::write(dir.join("agent.yaml"), config).expect("a file");
    }
    let log = fs::File::options().append(true).open(dir.join("log")).expect("a file");
    let mut command = cluster.command(BINARY);
    clocks.iter().for_each(|clocks| clocks.apply(&mut command, 1));
    command.args(join).args([
        "--data-dir",
        node,
        "--node-name",
        node,
        "--kubelet-config",
        "agent.yaml",
        "--node-ip",
        ADDRESS,
    ]);
    ChildProcess(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("nsenter is there"))
}

fn until_ready(case: &Case, node: &str) {
    let ready = || condition(&case.read(&format!("/api/v1/nodes/{node}")), "Ready").to_string();
    case.until_or(&format!("node {node}"), ready, |ready| ready == "True", || case.cluster.log());
}

/// The address of a new Service of the pod `web`.
fn expose(case: &Case, name: &str) -> String {
    case.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: web}}, ports: [{{port: 80, \
         targetPort: 8080}}]}}}}"
    ));
    case.object("services", name).str("spec.clusterIP").to_string()
}

#[test]
fn rules_are_right_after_the_agent_was_killed() {
    let (cluster, join) = server();
    let mut running = agent(&cluster, &join, "n1", None);
    let case = Case::new(&cluster, "rules");
    until_ready(&case, "n1");
    for pod in ["web", "closed"] {
        case.pod(
            pod,
            "terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE, command: \
             [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]",
        );
        case.until_ready(pod);
    }
    client(&case, "client");
    let closed = format!("http://{}:8080/", case.pods("closed").str("status.podIP"));
    let reply = |url: &str| case.exec("client", &format!("/usr/bin/curl -sS --max-time 2 {url} || echo FAILED"));
    assert_eq!(reply(&closed), "closed");
    for round in 0..rounds() {
        let before: Vec<(String, String)> = (0..4)
            .map(|number| {
                let name = format!("before-{round}-{number}");
                let address = expose(&case, &name);
                (name, address)
            })
            .collect();
        // While it applies the first changes.
        kill(&running);
        drop(running);
        let (removed, kept) = before.split_at(2);
        removed.iter().for_each(|(name, _)| drop(case.kubectl(&["delete", "service", name])));
        let during: Vec<String> = (0..2).map(|number| expose(&case, &format!("during-{round}-{number}"))).collect();
        if round == 0 {
            let policy = case.file(
                "policy.yaml",
                "# All connections to one pod.\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: \
                 closed}, spec: {podSelector: {matchLabels: {app: closed}}, policyTypes: [Ingress]}}\n",
            );
            case.kubectl(&["create", "-f", &policy]);
        }
        running = agent(&cluster, &join, "n1", None);
        let serves = || case.run(&["exec", "client", "--", "true"]).status.success();
        case.until("the kubelet", serves, |serves| *serves);
        for address in kept.iter().map(|(_, address)| address).chain(&during) {
            let url = format!("http://{address}/");
            case.until(&url, || reply(&url), |seen| seen == "web");
        }
        for (name, address) in removed {
            let gone = || reply(&format!("http://{address}/"));
            case.until(&format!("no rule of {name}"), gone, |reply| reply.contains("FAILED"));
        }
        case.until("a closed pod", || reply(&closed), |reply| reply.contains("FAILED"));
    }
    for pod in ["web", "closed", "client"] {
        assert_eq!(case.pods(pod).list("status.containerStatuses")[0].int("restartCount"), Some(0), "{pod} goes on");
    }
}

#[test]
fn a_node_whose_clock_is_an_hour_off_is_a_node() {
    let (cluster, join) = server();
    let clocks = ShiftedClocks::build();
    let case = Case::new(&cluster, "clocks");
    for (node, seconds) in [("ahead", 3600), ("behind", -3600)] {
        clocks.shift(1, seconds);
        let running = agent(&cluster, &join, node, Some(&clocks));
        until_ready(&case, node);
        let renewed = || {
            let lease = case.read(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"));
            lease.str("spec.renewTime").to_string()
        };
        let first = renewed();
        case.pod(
            node,
            &format!(
                "nodeName: {node}, hostNetwork: true, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: \
                 IMAGE, command: [sh, -c, 'echo hello; exec sleep 1000']}}]"
            ),
        );
        case.until_ready(node);
        let log = || String::from_utf8_lossy(&case.run(&["logs", node]).stdout).into_owned();
        case.until_or("its log", log, |log| log == "hello\n", || cluster.log());
        assert_eq!(case.exec(node, "echo in"), "in");
        case.until("another heartbeat", renewed, |renewed| *renewed != first);
        until_ready(&case, node);
        let taints = case.read(&format!("/api/v1/nodes/{node}")).list("spec.taints").len();
        assert_eq!(taints, 0, "nothing is evicted");
        case.kubectl(&["delete", "pod", node]);
        case.until_gone(node);
        kill(&running);
        // The next one has its address.
        case.kubectl(&["delete", "node", node]);
    }
}
