//! The node: its object, its port, and a Deployment on it.

use super::CaseFn;
use super::case::{Case, condition};
use super::cluster::{ADDRESS, NODE};

pub const CASES: &[(&str, CaseFn)] = &[
    ("the node reports its status", object),
    ("the port of the node through the api server", port),
    ("a deployment runs and serves", deployment),
];

fn object(case: &Case) {
    let node = case.read("/api/v1/nodes/node");
    for (kind, expected) in
        [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")]
    {
        assert_eq!(condition(&node, kind), expected, "{kind}");
    }
    let version = node.str("status.nodeInfo.containerRuntimeVersion").to_string();
    let expected = if case.is_containerd() { "containerd://1." } else { "tiphys://" };
    assert!(version.starts_with(expected), "{version}");
    let images =
        node.list("status.images").iter().flat_map(|image| image.list("names")).filter_map(|name| name.as_str());
    let images: Vec<&str> = images.collect();
    assert!(images.contains(&super::cluster::IMAGE), "{images:?}");
    let table = case.kubectl(&["get", "node", NODE, "-o", "wide", "--no-headers"]);
    for part in ["Ready", "v1.37", ADDRESS, expected] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let described = case.kubectl(&["describe", "node", NODE]);
    for part in ["kubelet is posting ready status", "Allocatable:", "Non-terminated Pods:", "KubeletReady"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let lease = case.read("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node");
    assert_eq!(lease.str("spec.holderIdentity"), NODE);
}

fn port(case: &Case) {
    case.pod("seen", "containers: [{name: main, image: IMAGE}]");
    case.until_ready("seen");
    let raw = |path: &str| case.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")]);
    let of = format!("namespace=\"{}\",pod=\"seen\"", case.namespace);
    for (path, parts) in [
        ("metrics/resource", &["node_cpu_usage_seconds_total", "container_memory_working_set_bytes{", &of][..]),
        ("metrics/cadvisor", &["container_cpu_usage_seconds_total{", "machine_cpu_cores", &case.namespace]),
        ("metrics/probes", &[]),
        ("metrics", &["# TYPE "]),
        ("stats/summary", &["\"nodeName\":\"node\"", "\"name\":\"seen\"", "\"workingSetBytes\""]),
        ("configz", &["\"kubeletconfig\"", "\"maxPods\":110"]),
        ("healthz", &["ok"]),
        ("pods", &["\"name\":\"seen\""]),
        ("runningpods/", &["\"name\":\"seen\""]),
    ] {
        let seen =
            case.until(path, || raw(path), |seen| parts.iter().all(|part| seen.replace(": ", ":").contains(part)));
        assert!(!seen.contains("panic"), "{path}");
    }
    let logs = raw("logs/");
    assert!(logs.contains("<a href=\"pods/\">pods/</a>"), "{logs}");
    let write = ["-c", "echo said by a service > /var/log/thing.log"];
    assert!(case.cluster.command("sh").args(write).status().expect("sh").success());
    for path in ["logs/thing.log", "logs/?query=thing", "logs/?query=/thing.log"] {
        assert_eq!(raw(path), "said by a service", "{path}");
    }
    for (path, word) in [("logs/?query=--file", "query"), ("logs/?query=thing&tailLines=x", "tailLines")] {
        let path = format!("/api/v1/nodes/{NODE}/proxy/{path}");
        let refused = case.refused(&["get", "--raw", &path]);
        assert!(refused.contains(word), "{path}: {refused}");
    }
}

fn deployment(case: &Case) {
    case.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, \
         selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, \
         image: IMAGE, command: [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]}}}}",
    );
    case.kubectl(&["rollout", "status", "deployment", "web", "--timeout=60s"]);
    let pods = case.read(&format!("/api/v1/namespaces/{}/pods", case.namespace));
    for pod in pods.list("items") {
        let (name, ip) = (pod.str("metadata.name"), pod.str("status.podIP"));
        let page = case.until("a page", || case.connect(&format!("{ip}:8080")), Option::is_some).unwrap_or_default();
        assert!(page.ends_with(&format!("\n{name}\n")), "{name}: {page}");
        for reason in ["Scheduled", "Pulled", "Created", "Started"] {
            case.until_event(name, reason, "");
        }
    }
    case.kubectl(&["set", "env", "deployment/web", "COLOR=red"]);
    case.kubectl(&["rollout", "status", "deployment", "web", "--timeout=60s"]);
    case.kubectl(&["delete", "deployment", "web"]);
}
