//! The newest kubectl against a cluster with fake nodes: common commands for workloads.

use std::path::PathBuf;
use std::time::Duration;

use crate::kubectl::{Kubectl, binaries};
use crate::support::Server;

/// A cluster with three nodes, and the kubectl that drives it.
pub struct World {
    pub server: Server,
    binary: PathBuf,
    version: (u32, u32),
}

impl World {
    pub fn new() -> World {
        World::with(&[])
    }

    /// With further flags.
    pub fn with(more: &[&str]) -> World {
        let (version, binary) = binaries().pop_last().expect("a kubectl");
        let flags: Vec<&str> = ["--fake-nodes", "3"].iter().chain(more).copied().collect();
        World { server: Server::start_with(&flags), binary, version }
    }

    pub fn kubectl(&self, namespace: &str) -> Kubectl<'_> {
        let kubectl = Kubectl {
            binary: &self.binary,
            version: self.version,
            server: &self.server,
            namespace: namespace.to_string(),
        };
        kubectl.run(&format!("create namespace {namespace}"));
        kubectl
    }
}

/// The timeout of all waits. A node counts as lost after 50 seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs a command until its output meets the condition.
#[track_caller]
pub fn eventually(kubectl: &Kubectl<'_>, arguments: &[&str], holds: impl Fn(&str) -> bool) -> String {
    stdx::wait::until_ok(&format!("kubectl {arguments:?}"), DEADLINE, || {
        let output = kubectl.output(arguments, "");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if holds(&text) { Ok(text) } else { Err(text) }
    })
}

pub fn until(kubectl: &Kubectl<'_>, arguments: &str, want: &str) {
    eventually(kubectl, &arguments.split(' ').collect::<Vec<_>>(), |text| text.trim() == want);
}

#[test]
fn rollouts_proceed_roll_back_and_pause() {
    let world = World::new();
    let kubectl = world.kubectl("rollouts");
    kubectl.run("create deployment web --image=web:1 --replicas=4");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    kubectl.run("set image deployment/web web=web:2");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    let history = kubectl.run("rollout history deployment/web");
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    kubectl.shows("rollout history deployment/web --revision=1", "web:1");
    kubectl.shows("rollout undo deployment/web", "rolled back");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    until(&kubectl, "get pods -o jsonpath={.items[*].spec.containers[0].image}", "web:1 web:1 web:1 web:1");
    kubectl.run("rollout pause deployment/web");
    kubectl.run("set image deployment/web web=web:3");
    until(&kubectl, "get deployment web -o jsonpath={.status.updatedReplicas}", "");
    kubectl.run("rollout resume deployment/web");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    until(&kubectl, "get pods -o jsonpath={.items[*].spec.containers[0].image}", "web:3 web:3 web:3 web:3");
    kubectl.shows("get pods -o wide", "fake-0");
    kubectl.shows("describe deployment web", "ScalingReplicaSet");
    kubectl.run("autoscale deployment web --min=2 --max=5 --cpu-percent=50");
    kubectl.shows("get hpa web", "Deployment/web");
    let wants = |text: &str| text.contains("FailedGetResourceMetric");
    eventually(&kubectl, &["describe", "hpa", "web"], wants);
}

#[test]
fn a_node_is_drained_as_far_as_budgets_allow() {
    let world = World::new();
    let kubectl = world.kubectl("drains");
    kubectl.run("create deployment web --image=web:1 --replicas=3");
    kubectl.run("create poddisruptionbudget web --selector=app=web --min-available=3");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    until(&kubectl, "get pdb web -o jsonpath={.status.currentHealthy}", "3");
    let drain = ["drain", "fake-0", "--ignore-daemonsets", "--timeout=6s"];
    kubectl.fails(&drain, "", "violate the pod's disruption budget");
    kubectl.run_with(&["patch", "pdb", "web", "-p", r#"{"spec":{"minAvailable":2}}"#], "");
    until(&kubectl, "get pdb web -o jsonpath={.status.disruptionsAllowed}", "1");
    kubectl.shows("drain fake-0 --ignore-daemonsets --timeout=60s", "drained");
    kubectl.shows("rollout status deployment/web --timeout=60s", "successfully rolled out");
    let nodes = kubectl.run("get pods -o jsonpath={.items[*].spec.nodeName}");
    assert!(!nodes.contains("fake-0"), "{nodes}");
    kubectl.shows("uncordon fake-0", "uncordoned");
}

#[test]
fn a_deletion_cascades_in_three_forms() {
    let world = World::new();
    let kubectl = world.kubectl("cascades");
    for name in ["background", "foreground", "orphan"] {
        kubectl.run(&format!("create deployment {name} --image=web:1 --replicas=2"));
        kubectl.shows(&format!("rollout status deployment/{name} --timeout=60s"), "successfully rolled out");
    }
    kubectl.run("delete deployment background --cascade=background");
    until(&kubectl, "get pods,replicasets -l app=background -o name", "");
    kubectl.run("delete deployment foreground --cascade=foreground --timeout=60s");
    assert_eq!(kubectl.run("get deployments,replicasets,pods -l app=foreground -o name"), "", "they went before it");
    kubectl.run("delete deployment orphan --cascade=orphan");
    kubectl.shows("get replicasets -l app=orphan -o name", "replicaset.apps/orphan-");
    until(&kubectl, "get replicasets -l app=orphan -o jsonpath={.items[*].metadata.ownerReferences}", "");
    assert_eq!(kubectl.run("get pods -l app=orphan -o name").lines().count(), 2);
}

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 3
  parallelism: 2
  backoffLimit: 1
  template:
    metadata: {annotations: {tiphys.io/fake-exit-code: "0"}}
    spec:
      restartPolicy: Never
      containers: [{name: work, image: "work:1"}]
"#;

#[test]
fn jobs_report_success_and_failure() {
    let world = World::new();
    let kubectl = world.kubectl("jobs");
    kubectl.run_with(&["apply", "-f", "-"], JOB);
    kubectl.shows("wait --for=condition=complete job/work --timeout=60s", "condition met");
    kubectl.shows("get job work -o jsonpath={.status.succeeded}", "3");
    let failing = JOB
        .replace("name: work}\nspec:\n  completions", "name: broken}\nspec:\n  completions")
        .replace("\"0\"", "\"7\"");
    kubectl.run_with(&["apply", "-f", "-"], &failing);
    kubectl.shows("wait --for=condition=failed job/broken --timeout=60s", "condition met");
    kubectl.shows("describe job broken", "BackoffLimitExceeded");
    let codes =
        "get pods -l job-name=broken -o jsonpath={.items[*].status.containerStatuses[0].state.terminated.exitCode}";
    assert!(kubectl.run(codes).split(' ').all(|code| code == "7"));
}

#[test]
fn blocked_namespaces_report_why() {
    let world = World::new();
    let kubectl = world.kubectl("stuck");
    kubectl.run("create configmap held --from-literal=a=1");
    kubectl.run_with(&["patch", "cm", "held", "-p", r#"{"metadata":{"finalizers":["example.com/hold"]}}"#], "");
    kubectl.run("delete namespace stuck --wait=false");
    let describe = ["describe", "namespace", "stuck"];
    eventually(&kubectl, &describe, |text| text.contains("example.com/hold in 1 resource instances"));
    kubectl.run_with(&["patch", "cm", "held", "-p", r#"{"metadata":{"finalizers":null}}"#], "");
    eventually(&kubectl, &["get", "namespace", "stuck"], |text| text.contains("not found"));
}

#[test]
fn lost_nodes_recover() {
    let world = World::new();
    let kubectl = world.kubectl("lost");
    kubectl.run("annotate node fake-1 tiphys.io/fake-down=true");
    until(&kubectl, "get node fake-1 -o jsonpath={.status.conditions[?(@.type=='Ready')].status}", "Unknown");
    kubectl.run("annotate node fake-1 tiphys.io/fake-down-");
    until(&kubectl, "get node fake-1 -o jsonpath={.status.conditions[?(@.type=='Ready')].status}", "True");
}
