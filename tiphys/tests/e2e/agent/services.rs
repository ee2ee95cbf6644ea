//! Services and their names, as pods and the machine use them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::Tree;

use super::Table;
use super::case::Case;
use super::cluster::ADDRESS;

pub const CASES: Table = &[
    ("services by name and address", by_name_and_address),
    ("names of stateful pods", stateful),
    ("services without endpoints refuse", refused),
    ("external names and manual endpoints", external),
    ("the api server by its name", api_server),
];

/// Not with the proxy mode userspace.
pub const POLICY_CASES: Table = &[("network policies hold", policies)];

const REPLICAS: usize = 3;
const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: IMAGE
        command: [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
";

/// A pod with the machine's own curl and resolver: those of the image are static, and load no modules.
pub fn client(case: &Case, name: &str) {
    client_with(case, name, "", &[]);
}

/// The same with more of a spec, and with more of the machine's directories.
pub fn client_with(case: &Case, name: &str, spec: &str, directories: &[(&str, &str)]) {
    let (volumes, mounts) = machine_volumes(directories);
    case.pod(
        name,
        &format!(
            "{spec} terminationGracePeriodSeconds: 1, volumes: [{volumes}], \
             containers: [{{name: main, image: IMAGE, volumeMounts: [{mounts}]}}]"
        ),
    );
    case.until_ready(name);
}

/// Volumes and mounts of the machine's programs, and of more of its directories at paths in the pod.
pub fn machine_volumes(directories: &[(&str, &str)]) -> (String, String) {
    let all = [("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")].into_iter();
    let all: Vec<(&str, &str)> = all.chain(directories.iter().copied()).collect();
    let volume =
        |(number, (path, _)): (usize, &(&str, &str))| format!("{{name: v{number}, hostPath: {{path: {path}}}}}");
    let mount = |(number, (_, path)): (usize, &(&str, &str))| format!("{{name: v{number}, mountPath: {path}}}");
    let volumes: Vec<String> = all.iter().enumerate().map(volume).collect();
    let mounts: Vec<String> = all.iter().enumerate().map(mount).collect();
    (volumes.join(", "), mounts.join(", "))
}

/// The names of the pods that respond at a URL.
pub fn answering(case: &Case, client: &str, url: &str) -> BTreeSet<String> {
    let script = format!("for n in $(seq 1 24); do /usr/bin/curl -sS --max-time 5 {url} || echo FAILED; done");
    case.exec(client, &script).lines().map(str::to_string).collect()
}

pub fn service(case: &Case, name: &str) -> Tree {
    case.object("services", name)
}

fn deploy(case: &Case) {
    case.apply(WEB);
    case.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
}

fn by_name_and_address(case: &Case) {
    deploy(case);
    case.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=http", "--type=NodePort"]);
    client(case, "client");
    let service = service(case, "web");
    let (ip, ports) = (service.str("spec.clusterIP").to_string(), service.list("spec.ports").to_vec());
    let node_port = ports[0].int("nodePort").expect("a node port");
    let namespace = &case.namespace;
    let expected: BTreeSet<String> = case
        .read(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dweb"))
        .list("items")
        .iter()
        .map(|pod| pod.str("metadata.name").to_string())
        .collect();
    assert_eq!(expected.len(), REPLICAS);
    for host in [
        "web".to_string(),
        format!("web.{namespace}"),
        format!("web.{namespace}.svc"),
        format!("web.{namespace}.svc.cluster.local"),
        ip.clone(),
        format!("{ADDRESS}:{node_port}"),
    ] {
        let seen =
            case.until(&host, || answering(case, "client", &format!("http://{host}/")), |seen| *seen == expected);
        assert_eq!(seen, expected, "{host}");
    }
    // From the machine.
    for address in [format!("{ip}:80"), format!("{ADDRESS}:{node_port}")] {
        let page = case.until(&address, || case.connect(&address), Option::is_some).unwrap_or_default();
        assert!(expected.iter().any(|name| page.trim_end().ends_with(name.as_str())), "{address}: {page}");
    }
    // From another namespace, and to oneself through the service.
    let other = Case::new(case.cluster, &format!("{namespace}-other"));
    client(&other, "client");
    assert_eq!(answering(&other, "client", &format!("http://web.{namespace}/")), expected);
    case.kubectl(&["scale", "deployment", "web", "--replicas=1"]);
    let last = case.until(
        "one endpoint",
        || answering(case, "client", &format!("http://{ip}/")),
        |seen| seen.len() == 1 && !seen.contains("FAILED"),
    );
    let last = last.first().expect("a name");
    let itself = case.exec(last, &format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {ip} 80 | tail -1"));
    assert_eq!(itself, *last, "a pod reaches itself through its service");
    // A deleted service stops working at once.
    case.kubectl(&["delete", "service", "web"]);
    case.until("no answer", || answering(case, "client", "http://web/"), |seen| seen.iter().all(|one| one == "FAILED"));
}

pub fn addresses_of(case: &Case, name: &str) -> BTreeSet<String> {
    let found = case.exec("client", &format!("/usr/bin/getent ahosts {name} || true"));
    found.lines().filter_map(|line| line.split_whitespace().next().map(str::to_string)).collect()
}

fn stateful(case: &Case) {
    client(case, "client");
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {clusterIP: None, selector: {app: db}, \
         ports: [{name: sql, port: 5432}]}}",
    );
    for name in ["db-0", "db-1"] {
        case.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: db}}}}, spec: {{hostname: {name}, \
             subdomain: db, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: IMAGE}}]}}}}"
        ));
    }
    let ips: Vec<String> = ["db-0", "db-1"].map(|name| case.until_ready(name).str("status.podIP").to_string()).to_vec();
    let all: BTreeSet<String> = ips.iter().cloned().collect();
    case.until("all addresses", || addresses_of(case, "db"), |seen| *seen == all);
    for (name, ip) in ["db-0", "db-1"].iter().zip(&ips) {
        assert_eq!(addresses_of(case, &format!("{name}.db")), [ip.clone()].into(), "{name}");
        // And back.
        let back = case.exec("client", &format!("/usr/bin/getent hosts {ip}"));
        assert!(back.contains(&format!("{name}.db.{}.svc.cluster.local", case.namespace)), "{back}");
    }
    assert_eq!(addresses_of(case, "db-2.db"), BTreeSet::new());
    case.kubectl(&["delete", "pod", "db-1", "--now"]);
    case.until("one address", || addresses_of(case, "db"), |seen| *seen == [ips[0].clone()].into());
}

/// Not a hang: clients fail over at once.
fn refused(case: &Case) {
    client(case, "client");
    case.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: empty}, spec: {selector: {app: none}, ports: [{port: 80}]}}",
    );
    let ip = service(case, "empty").str("spec.clusterIP").to_string();
    let attempt = |url: String| {
        let begun = Instant::now();
        let output = case.exec("client", &format!("/usr/bin/curl -sS --max-time 20 {url} 2>&1 || true"));
        (output, begun.elapsed())
    };
    let is_refused = |seen: &(String, Duration)| seen.0.contains("refused") || seen.0.contains("Couldn't connect");
    let (output, took) = case.until("a refusal", || attempt(format!("http://{ip}/")), is_refused);
    assert!(took < Duration::from_secs(15), "{output} after {took:?}");
}

fn external(case: &Case) {
    deploy(case);
    client(case, "client");
    let pod = case.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}"]);
    let name = case.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"]);
    case.apply("{apiVersion: v1, kind: Service, metadata: {name: manual}, spec: {ports: [{name: http, port: 80}]}}");
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: manual-1, labels: {{kubernetes.io/service-name: manual}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [{pod}]}}]\n"
    );
    let file = case.file("slice", &slice);
    case.kubectl(&["apply", "-f", &file]);
    case.until(
        "the manual endpoint",
        || answering(case, "client", "http://manual/"),
        |seen| *seen == [name.clone()].into(),
    );
    case.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    let external = format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: alias}}, spec: {{type: ExternalName, externalName: \
         web.{}.svc.cluster.local}}}}",
        case.namespace
    );
    case.apply(&external);
    let seen = case.until("the alias", || answering(case, "client", "http://alias/"), |seen| seen.len() == REPLICAS);
    assert!(!seen.contains("FAILED"), "{seen:?}");
}

/// With the certificate, and as the service account of the pod.
fn api_server(case: &Case) {
    client(case, "client");
    for host in ["kubernetes.default.svc", "kubernetes.default", "10.96.0.1"] {
        let ask = format!(
            "cd /var/run/secrets/kubernetes.io/serviceaccount && /usr/bin/curl -sS --cacert ca.crt \
             -H \"Authorization: Bearer $(cat token)\" https://{host}/apis"
        );
        let output = case.exec("client", &ask);
        assert!(output.contains("APIGroupList"), "{host}: {output}");
    }
}

/// Through the service: policies apply to the real endpoint. Names are resolved and probes succeed all the time.
fn policies(case: &Case) {
    deploy(case);
    case.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    client(case, "friend");
    client(case, "other");
    let reaches = |client: &str| {
        let output = case.exec(client, "/usr/bin/curl -sS --max-time 2 http://web/ || echo FAILED");
        !output.contains("FAILED")
    };
    for client in ["friend", "other"] {
        case.until(&format!("{client} reaches web"), || reaches(client), |reached| *reached);
    }
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: friends}\nspec:\n  \
                  podSelector: {matchLabels: {app: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {app: friend}}}]\n    \
                  ports: [{port: http}]\n";
    let file = case.file("policy", policy);
    case.kubectl(&["apply", "-f", &file]);
    case.until("other is blocked", || reaches("other"), |reached| !*reached);
    assert!(reaches("friend"), "the policy allows it");
    let ready = case.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"]);
    assert_eq!(ready, "3", "the node's own probes reach its pods");
    case.kubectl(&["delete", "networkpolicy", "friends"]);
    case.until("other reaches web again", || reaches("other"), |reached| *reached);
}
