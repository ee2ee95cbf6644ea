//! Applications behind services: a web server of Debian's, a StatefulSet, pods in the network of their node, and pods that
//! terminate.

use std::collections::BTreeSet;

use super::Table;
use super::case::Case;
use super::cluster::{ADDRESS, NGINX};
use super::services::{addresses_of, answering, client, client_with, service};

pub const CASES: Table = &[
    ("nginx behind a service", nginx),
    ("a stateful set with stable names", stateful_set),
    ("services of the host network", host_network),
    ("terminating pods serve until new ones do", terminating),
];

fn names_of(case: &Case, label: &str) -> BTreeSet<String> {
    let names = case.kubectl(&["get", "pods", "-l", label, "-o", "jsonpath={.items[*].metadata.name}"]);
    names.split_whitespace().map(str::to_string).collect()
}

fn nginx(case: &Case) {
    case.kubectl(&["create", "deployment", "nginx", &format!("--image={NGINX}"), "--replicas=2"]);
    case.kubectl(&["expose", "deployment", "nginx", "--port=80", "--type=NodePort"]);
    case.kubectl(&["rollout", "status", "deployment/nginx", "--timeout=60s"]);
    client(case, "client");
    let service = service(case, "nginx");
    let port = service.list("spec.ports")[0].int("nodePort").expect("a node port");
    let ip = service.str("spec.clusterIP");
    for host in [
        "nginx".to_string(),
        format!("nginx.{}.svc.cluster.local", case.namespace),
        ip.to_string(),
        format!("{ADDRESS}:{port}"),
    ] {
        let pods = names_of(case, "app=nginx");
        let expected: BTreeSet<String> = pods.iter().map(|pod| format!("nginx in {pod} for {host}")).collect();
        let url = format!("http://{host}/");
        case.until(&host, || answering(case, "client", &url), |seen| *seen == expected);
    }
    // From the machine.
    for address in [format!("{ip}:80"), format!("{ADDRESS}:{port}")] {
        let page = case.until(&address, || case.connect(&address), Option::is_some).unwrap_or_default();
        assert!(page.contains("nginx in nginx-"), "{address}: {page}");
    }
}

const STATEFUL_SET: &str = "apiVersion: v1
kind: Service
metadata: {name: db}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: http, port: 8080}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: IMAGE
        command: [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
";

fn stateful_set(case: &Case) {
    let file = case.file("set", &STATEFUL_SET.replace("IMAGE", super::cluster::IMAGE));
    case.kubectl(&["apply", "-f", &file]);
    client(case, "client");
    case.kubectl(&["rollout", "status", "statefulset/db", "--timeout=60s"]);
    let domain = format!("db.{}.svc.cluster.local", case.namespace);
    check_members(case);
    // The record of the named port has all members.
    let records = || case.exec("client", &format!("nslookup -type=srv _http._tcp.{domain} || true"));
    let has_all = |text: &String| (0..2).all(|number| text.contains(&format!(" 8080 db-{number}.{domain}")));
    case.until("the SRV records", records, has_all);
    // A new pod has the name of the old one.
    let before = case.pods("db-1").str("metadata.uid").to_string();
    case.kubectl(&["delete", "pod", "db-1"]);
    case.until_pod("db-1", "its successor", |pod| !pod.is_null() && pod.str("metadata.uid") != before);
    check_members(case);
}

/// Each member is found by its name, and replies with it.
fn check_members(case: &Case) {
    for name in ["db-0", "db-1"] {
        let ip = case.until_ready(name).str("status.podIP").to_string();
        case.until(name, || addresses_of(case, &format!("{name}.db")), |seen| *seen == [ip.clone()].into());
        assert_eq!(answering(case, "client", &format!("http://{name}.db:8080/")), [name.to_string()].into());
    }
}

fn host_network(case: &Case) {
    case.pod(
        "server",
        "hostNetwork: true, containers: [{name: main, image: IMAGE, command: \
         [sh, -c, 'echo of the host > /tmp/index.html; exec httpd -f -p 18090 -h /tmp']}]",
    );
    case.until_ready("server");
    case.kubectl(&["expose", "pod", "server", "--port=80", "--target-port=18090"]);
    client(case, "client");
    client_with(case, "host-client", "hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet,", &[]);
    let expected = BTreeSet::from(["of the host".to_string()]);
    for client in ["client", "host-client"] {
        case.until(client, || answering(case, client, "http://server/"), |seen| *seen == expected);
    }
    let page = case.connect(&format!("{}:80", service(case, "server").str("spec.clusterIP"))).unwrap_or_default();
    assert!(page.contains("of the host"), "{page}");
}

/// A pod that ignores SIGTERM: it serves as long as no other pod is ready.
fn terminating(case: &Case) {
    let server = |name: &str| {
        let command = "trap '' TERM; hostname > /tmp/index.html; httpd -f -p 8080 -h /tmp & wait";
        case.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: drain}}}}, spec: \
             {{terminationGracePeriodSeconds: 120, containers: [{{name: main, image: IMAGE, command: [sh, -c, {command:?}]}}]}}}}"
        ));
        case.until_ready(name);
    };
    server("old");
    case.kubectl(&["expose", "pod", "old", "--name=drain", "--selector=app=drain", "--port=80", "--target-port=8080"]);
    client(case, "client");
    let answers = |name: &str| {
        let expected = BTreeSet::from([name.to_string()]);
        case.until(name, || answering(case, "client", "http://drain/"), |seen| *seen == expected);
    };
    answers("old");
    case.kubectl(&["delete", "pod", "old", "--wait=false"]);
    let conditions = || {
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", case.namespace);
        let slices = case.read(&path);
        let endpoint = slices.list("items").iter().find_map(|slice| slice.list("endpoints").first()).cloned();
        let endpoint = endpoint.unwrap_or(api::Tree::Null);
        ["ready", "serving", "terminating"].map(|name| endpoint.at("conditions").bool(name))
    };
    case.until("the terminating endpoint", conditions, |seen| *seen == [false, true, true]);
    answers("old");
    server("new");
    answers("new");
    case.kubectl(&["delete", "pod", "old", "new", "--force", "--grace-period=0"]);
}
