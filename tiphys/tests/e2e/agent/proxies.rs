//! The service proxy as a separate process, and the state after `--cleanup`.

use std::fs;
use std::process::Command;

use super::case::{Case, ChildProcess, condition};
use super::cluster::{Cluster, NODE, Runtime};
use super::services::{answering, client};
use crate::support::BINARY;

/// The mode that a proxy reports.
pub fn mode(cluster: &Cluster) -> String {
    let output = cluster.command("curl").args(["-sS", "http://127.0.0.1:10249/proxyMode"]).output().expect("curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tables and chains of a proxy.
fn rules(cluster: &Cluster) -> String {
    let script = "nft list tables | grep tiphys-proxy; iptables-save | grep TP-; ip6tables-save | grep TP-";
    let output = cluster.command("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Chains like Docker's in the iptables of the machine, with jumps to them.
const FOREIGN: &str = "for table in nat filter; do
    case $table in nat) hook=PREROUTING;; *) hook=FORWARD;; esac
    iptables -t $table -N DOCKER && iptables -t $table -A DOCKER -s 198.51.100.7/32 -j RETURN &&
    iptables -t $table -A $hook -m addrtype --dst-type LOCAL -j DOCKER || exit 1
done";

/// The rules of iptables that no proxy has, without their counters.
fn foreign_rules(cluster: &Cluster) -> String {
    let script = "iptables-save | grep -E '^(-A|:)' | grep -v TP- | sed 's/ \\[.*//'";
    let output = cluster.command("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Kills the process itself, which nsenter has started.
pub fn kill(process: &ChildProcess) {
    let parent = process.0.id();
    let child = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("a child");
    assert!(Command::new("kill").args(["-KILL", child.trim()]).status().expect("kill is there").success());
}

#[test]
fn a_killed_proxy_leaves_its_rules_until_a_cleanup() {
    let cluster = Cluster::up_with(Runtime::Embedded, &["--disable", "kube-proxy"]);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let case = Case::new(&cluster, "alone");
    case.pod(
        "web",
        "containers: [{name: main, image: IMAGE, command: \
         [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]",
    );
    case.until_ready("web");
    case.kubectl(&["expose", "pod", "web", "--port=80", "--target-port=8080"]);
    client(&case, "client");
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let output = cluster.command("sh").args(["-c", FOREIGN]).output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let foreign = foreign_rules(&cluster);
    assert_eq!(foreign.matches("DOCKER").count(), 6, "{foreign}");
    for chosen in ["nftables", "iptables", "userspace"] {
        let flags = ["--hostname-override", NODE, "--cluster-cidr", "10.42.0.0/16", "--proxy-mode", chosen];
        let proxy = cluster.spawn(&[&["kube-proxy", "--kubeconfig", &kubeconfig], &flags[..]].concat());
        let answers = || answering(&case, "client", "http://web/");
        case.until(chosen, answers, |seen| *seen == ["web".to_string()].into());
        assert_eq!(mode(&cluster), chosen);
        assert_eq!(foreign_rules(&cluster), foreign, "{chosen}: foreign rules after a sync");
        kill(&proxy);
        drop(proxy);
        assert!(!rules(&cluster).is_empty(), "{chosen}: the rules stay");
        if chosen != "userspace" {
            assert_eq!(answers(), ["web".to_string()].into(), "{chosen}: connections are still forwarded");
        }
        let output = cluster.command(BINARY).args(["kube-proxy", "--cleanup"]).output().expect("nsenter is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(rules(&cluster), "", "{chosen}: rules are left");
        assert_eq!(foreign_rules(&cluster), foreign, "{chosen}: foreign rules after a cleanup");
        // Only one attempt: the kernel tracks the connection for two minutes.
        let reply = case.exec("client", "curl -sS --max-time 1 http://web/ || echo FAILED");
        assert_eq!(reply, "FAILED", "{chosen}: something still forwards");
    }
}
