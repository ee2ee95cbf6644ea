//! Many services on a real cluster, while their endpoints change.

use std::time::{Duration, Instant};

use super::case::{Case, condition};
use super::cluster::{Cluster, Runtime};
use super::services::{addresses_of, answering, client_with};

/// Services of a normal run; the environment variable `TIPHYS_SERVICES` overrides it.
const SERVICES: usize = 500;
const ENDPOINTS: usize = 10;
/// Changes of endpoints while services are used.
const CHANGES: usize = 300;
const SOON: Duration = Duration::from_secs(20);

/// Endpoints that do not exist, in the range for benchmarks.
fn slice(number: usize, count: usize) -> String {
    let endpoint = |at: usize| {
        let host = number * ENDPOINTS + at;
        format!(r#"{{"addresses":["198.{}.{}.{}"]}}"#, 18 + host / 65536, host / 256 % 256, host % 256)
    };
    let endpoints: Vec<String> = (0..count).map(endpoint).collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: many-{number}, labels: \
         {{kubernetes.io/service-name: many-{number}}}}}, addressType: IPv4, ports: [{{name: http, port: 8080}}], \
         endpoints: [{}]}}",
        endpoints.join(",")
    )
}

fn change(case: &Case, number: usize, count: usize) {
    let tree = api::yaml::decode(slice(number, count).as_bytes()).expect("YAML");
    let endpoints = String::from_utf8(api::json::encode(tree.at("endpoints"), None)).expect("text");
    let namespace = &case.namespace;
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/many-{number}");
    case.patch(&path, &format!(r#"{{"endpoints":{endpoints}}}"#));
}

#[test]
fn services_work_among_many_that_change() {
    let chosen = std::env::var("TIPHYS_SERVICES").ok();
    let services = chosen.map_or(SERVICES, |text| text.parse().expect("TIPHYS_SERVICES is a number"));
    let cluster = Cluster::up(Runtime::Embedded);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let case = Case::new(&cluster, "many");
    for number in 0..services {
        case.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: many-{number}}}, spec: {{ports: [{{name: http, port: 80}}]}}}}"
        ));
        case.apply(&slice(number, ENDPOINTS));
    }
    // Variables of thousands of services are more than the kernel passes to a process.
    client_with(&case, "client", "enableServiceLinks: false,", &[]);
    case.pod(
        "web",
        "enableServiceLinks: false, containers: [{name: main, image: IMAGE, command: \
         [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]",
    );
    case.until_ready("web");
    case.kubectl(&["expose", "pod", "web", "--port=80", "--target-port=8080"]);
    let expected = ["web".to_string()].into();
    case.until("a reply", || answering(&case, "client", "http://web/"), |seen| *seen == expected);
    // Every service has its name.
    let last = services - 1;
    let ip = case.object("services", &format!("many-{last}")).str("spec.clusterIP").to_string();
    assert_eq!(addresses_of(&case, &format!("many-{last}")), [ip].into());
    let busy = case.start(
        &super::case::debians(),
        &[
            "exec",
            "client",
            "--",
            "sh",
            "-c",
            "for n in $(seq 1 200); do curl -sS --max-time 10 http://web/ || echo FAILED; done",
        ],
    );
    let started = Instant::now();
    for number in 0..CHANGES {
        change(&case, number * 7 % services, ENDPOINTS - 1 - number % 3);
    }
    let output = busy.finish();
    let seen: std::collections::BTreeSet<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect();
    assert_eq!(seen, expected, "after {:?}", started.elapsed());
    // The last change is in force soon: a service of the real pod's address replies.
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/many/endpointslices/many-{last}");
    let address = case.pods("web").str("status.podIP").to_string();
    let changed = Instant::now();
    case.patch(&path, &format!(r#"{{"endpoints":[{{"addresses":["{address}"]}}]}}"#));
    let url = format!("http://many-{last}/");
    case.until("the change", || answering(&case, "client", &url), |seen| *seen == expected);
    assert!(changed.elapsed() < SOON, "{:?}", changed.elapsed());
}
