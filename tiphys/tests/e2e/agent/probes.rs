//! Probes that fail and recover.

use api::Tree;

use super::CaseFn;
use super::case::{Case, condition, container};

pub const CASES: &[(&str, CaseFn)] = &[
    ("readiness moves condition and endpoints", readiness),
    ("a failed liveness probe restarts a container", liveness),
    ("a startup probe delays the other probes", startup),
    ("http and tcp probes follow a server", servers),
    ("readiness gates wait for their conditions", gates),
];

fn endpoint_is_ready(case: &Case, service: &str) -> Option<bool> {
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}",
        case.namespace
    );
    let slices = case.read(&path);
    let endpoints = slices.list("items").iter().flat_map(|slice| slice.list("endpoints"));
    endpoints.into_iter().next().map(|endpoint| endpoint.bool("conditions.ready"))
}

fn readiness(case: &Case) {
    case.pod(
        "web",
        "containers: [{name: main, image: IMAGE, ports: [{containerPort: 80}], \
         readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}}]",
    );
    case.kubectl(&["expose", "pod", "web", "--port=80"]);
    case.until_event("web", "Unhealthy", "Readiness probe failed: cat: can't open '/tmp/ready'");
    let pod = case.pods("web");
    assert_eq!((pod.str("status.phase"), condition(&pod, "Ready")), ("Running", "False"));
    assert!(case.kubectl(&["get", "pod", "web"]).contains("0/1"));
    let why = pod.list("status.conditions").iter().find(|one| one.str("type") == "Ready").cloned().unwrap_or_default();
    assert_eq!(
        (why.str("reason"), why.str("message")),
        ("ContainersNotReady", "containers with unready status: [main]")
    );
    for (command, ready) in [("touch /tmp/ready", true), ("rm /tmp/ready", false), ("touch /tmp/ready", true)] {
        case.exec("web", command);
        let wanted = if ready { "True" } else { "False" };
        case.until_pod("web", command, |pod| condition(pod, "Ready") == wanted);
        case.until("its endpoint", || endpoint_is_ready(case, "web"), |seen| *seen == Some(ready));
    }
    assert_eq!(container(&case.pods("web"), "main").int("restartCount"), Some(0));
}

fn liveness(case: &Case) {
    case.pod(
        "web",
        "terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE, \
         command: [sh, -c, 'echo born; touch /tmp/alive; exec sleep 1000'], \
         livenessProbe: {exec: {command: [test, -f, /tmp/alive]}, initialDelaySeconds: 1, periodSeconds: 1, \
         failureThreshold: 2}}]",
    );
    case.until_ready("web");
    case.exec("web", "rm /tmp/alive");
    let again = |pod: &Tree| container(pod, "main").int("restartCount") == Some(1) && condition(pod, "Ready") == "True";
    let pod = case.until_pod("web", "another start", again);
    assert_eq!(container(&pod, "main").int("lastState.terminated.exitCode"), Some(137));
    case.until_event("web", "Unhealthy", "Liveness probe failed: ");
    case.until_event("web", "Killing", "Container main failed liveness probe, will be restarted");
    assert_eq!(case.kubectl(&["logs", "web", "--previous"]), "born");
}

fn startup(case: &Case) {
    let liveness = "livenessProbe: {exec: {command: [test, -f, /tmp/up]}, periodSeconds: 1, failureThreshold: 1}";
    let startup = |times: u32| {
        format!("startupProbe: {{exec: {{command: [test, -f, /tmp/up]}}, periodSeconds: 1, failureThreshold: {times}}}")
    };
    case.pod("slow", &format!("containers: [{{name: main, image: IMAGE, {liveness}, {}}}]", startup(60)));
    case.pod(
        "never",
        &format!("terminationGracePeriodSeconds: 1, containers: [{{name: main, image: IMAGE, {}}}]", startup(2)),
    );
    case.until_event("slow", "Unhealthy", "Startup probe failed: ");
    let pod = case.pods("slow");
    assert!(!container(&pod, "main").bool("started") && condition(&pod, "Ready") == "False");
    case.exec("slow", "touch /tmp/up");
    let pod = case.until_ready("slow");
    assert!(container(&pod, "main").bool("started"));
    assert_eq!(container(&pod, "main").int("restartCount"), Some(0));
    case.until_event("never", "Killing", "Container main failed startup probe, will be restarted");
    case.until_pod("never", "a restart", |pod| container(pod, "main").int("restartCount") > Some(0));
}

fn servers(case: &Case) {
    case.pod(
        "http",
        "containers: [{name: main, image: IMAGE, command: [httpd, -f, -p, '8080', -h, /tmp], \
         ports: [{name: web, containerPort: 8080}], \
         readinessProbe: {httpGet: {path: /page, port: web}, periodSeconds: 1, failureThreshold: 1}}]",
    );
    case.pod(
        "tcp",
        "containers: [{name: main, image: IMAGE, command: [sh, -c, 'while [ ! -f /tmp/go ]; do sleep 0.1; done; exec \
         httpd -f -p 8080'], readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}]",
    );
    case.until_event("http", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404");
    case.until_event("tcp", "Unhealthy", "connect: connection refused");
    case.exec("http", "echo hello > /tmp/page");
    case.exec("tcp", "touch /tmp/go");
    case.until_ready("http");
    case.until_ready("tcp");
}

fn gates(case: &Case) {
    case.pod("gated", "readinessGates: [{conditionType: suite.local/open}], containers: [{name: main, image: IMAGE}]");
    let pod = case.until_pod("gated", "its container", |pod| condition(pod, "ContainersReady") == "True");
    assert_eq!(condition(&pod, "Ready"), "False");
    let path = format!("/api/v1/namespaces/{}/pods/gated/status", case.namespace);
    case.patch(&path, r#"{"status":{"conditions":[{"type":"suite.local/open","status":"True"}]}}"#);
    case.until_ready("gated");
}
