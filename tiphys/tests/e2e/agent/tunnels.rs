//! A node behind NAT: it reaches the server, and no address of it is reachable for the server, neither the kubelet nor its
//! pods. Everything that a server connects to goes through the node's tunnel.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::case::{Case, condition};
use super::cluster::{ANY_DISK, Cluster, ENTER, Runtime, cgroup_of, make_images};
use super::in_cluster::interpreter;
use super::machine::Machine;
use super::services::machine_volumes;
use super::{Table, check, extension, streams};
use crate::support::tool;

const NODE: &str = "node";
/// The address of the node, which only the router knows.
const HIDDEN: &str = "10.99.0.2";

const CASES: Table = &[
    ("logs and exec behind NAT", logs_and_exec),
    ("metrics of the kubelet behind NAT", metrics),
    ("a webhook in a pod behind NAT", webhook),
    ("proxied pods and services behind NAT", proxied),
];

/// Connects a machine to the link of the cluster through a router that hides its address.
fn hide<'a>(cluster: &'a Cluster) -> [Machine<'a>; 2] {
    let (router, behind) = (Machine::new(cluster, "router"), Machine::new(cluster, "behind"));
    router.take_link("out", "192.0.2.20");
    // Names of processes are those of the cluster, whose `/proc` the router sees.
    router.shell(&format!(
        "ip link add inner type veth peer name eth0 netns {} && ip address add 10.99.0.1/24 dev inner && \
         ip link set inner up && echo 1 > /proc/sys/net/ipv4/ip_forward && \
         nft add table ip nat && nft add chain ip nat post '{{ type nat hook postrouting priority srcnat; }}' && \
         nft add rule ip nat post oifname out masquerade",
        behind.pid
    ));
    behind.shell(&format!(
        "ip address add {HIDDEN}/24 dev eth0 && ip link set eth0 up && ip route add default via 10.99.0.1"
    ));
    [router, behind]
}

/// Whether this thread, which is in the network of the server, connects to an address.
fn connects(address: &str) -> bool {
    let address: SocketAddr = address.parse().expect("an address");
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

#[test]
fn a_node_behind_nat_is_reached_through_its_tunnel() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["up", "--disable-agent", "--bind-address", "0.0.0.0", "--port", "6443", "--data-dir", "data"];
    let cluster = Cluster::run(dir, Runtime::Embedded, ENTER, &words.map(str::to_string));
    cluster.enter();
    let all = Case::of_cluster(&cluster);
    let [router, behind] = hide(&cluster);
    let dir = cluster.dir.path();
    make_images(&dir.join("agent/runtime/images"));
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}\n{ANY_DISK}",
        cgroup_of(&cluster.dir)
    );
    std::fs::write(dir.join("agent.yaml"), config).expect("a file");
    let join = super::joins::tiphys(&cluster, &["token", "create", "--print-join-command"]);
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    let own = ["--data-dir=agent", "--node-name", NODE, "--kubelet-config=agent.yaml"];
    let _agent = behind.spawn(&[&words[..], &own].concat());
    let node = || all.read("/api/v1/nodes/node");
    all.until_or("a ready node", node, |node| condition(node, "Ready") == "True", || behind.log());
    let addresses = node().list("status.addresses").to_vec();
    assert!(addresses.iter().any(|address| address.str("address") == HIDDEN), "{addresses:?}");

    // The kubelet listens, but not for the server.
    router.shell(&format!("curl -sk -o /dev/null https://{HIDDEN}:10250/healthz"));
    assert!(!connects(&format!("{HIDDEN}:10250")), "the server must not reach the node directly");
    check(&cluster, &[CASES, streams::CONNECTIONS, extension::CASES]);
    assert!(!connects(&format!("{HIDDEN}:10250")));
}

/// A web server, whose address the server cannot reach.
fn web(case: &Case) {
    case.pod(
        "web",
        "containers: [{name: main, image: IMAGE, command: [sh, -c, 'echo hello; hostname > /tmp/index.html; exec httpd -f -p \
         8080 -h /tmp']}]",
    );
    let ip = case.until_ready("web").str("status.podIP").to_string();
    assert!(!connects(&format!("{ip}:8080")), "the server must not reach the pod directly");
}

fn logs_and_exec(case: &Case) {
    web(case);
    assert_eq!(case.kubectl(&["logs", "web"]), "hello");
    assert_eq!(case.exec("web", "hostname"), "web");
    // More than the window of a stream, in both directions.
    let many = case.exec("web", "head -c 3000000 /dev/zero | tr '\\0' x");
    assert_eq!(many.len(), 3_000_000);
}

fn metrics(case: &Case) {
    let get = |path: &str| case.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")]);
    let stats = case.until("statistics", || get("stats/summary"), |stats| stats.contains("\"cpu\""));
    assert!(stats.contains("\"nodeName\":\"node\""), "{stats}");
    assert!(get("metrics").contains("kubelet_running_pods"));
    assert!(get("metrics/resource").contains("node_cpu_usage_seconds_total"));
}

fn proxied(case: &Case) {
    web(case);
    case.kubectl(&["expose", "pod", "web", "--port=80", "--target-port=8080"]);
    let get = |part: &str| {
        let path = format!("/api/v1/namespaces/{}/{part}/proxy/", case.namespace);
        String::from_utf8_lossy(&case.run(&["get", "--raw", &path]).stdout).trim().to_string()
    };
    for part in ["pods/web:8080", "services/web"] {
        case.until(part, || get(part), |page| page == "web");
    }
}

const WEBHOOK: &str = r#"
import http.server, json, ssl

class Review(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": "refused behind NAT"}}
        body = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

server = http.server.ThreadingHTTPServer(("", 8443), Review)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

fn webhook(case: &Case) {
    let (certificate, key) = extension::openssl(case, "review");
    let (cert, key) = (format!("--cert={certificate}"), format!("--key={key}"));
    case.kubectl(&["create", "secret", "tls", "review", &cert, &key]);
    let script = case.file("review.py", WEBHOOK);
    case.kubectl(&["create", "configmap", "script", &format!("--from-file=review.py={script}")]);
    let (python, prefix) = interpreter(&tool("python/bin/python"));
    let directories: Vec<_> = (prefix != "/usr").then_some((prefix.as_str(), prefix.as_str())).into_iter().collect();
    let (volumes, mounts) = machine_volumes(&directories);
    case.pod(
        "review",
        &format!(
            "volumes: [{volumes}, {{name: script, configMap: {{name: script}}}}, {{name: tls, secret: {{secretName: review}}}}], \
             containers: [{{name: main, image: IMAGE, command: [{python}, /script/review.py], volumeMounts: [{mounts}, \
             {{name: script, mountPath: /script}}, {{name: tls, mountPath: /tls}}], readinessProbe: {{tcpSocket: {{port: \
             8443}}, periodSeconds: 1}}}}]"
        ),
    );
    case.until_ready("review");
    case.kubectl(&["expose", "pod", "review", "--port=443", "--target-port=8443"]);
    let ca = api::base64::encode(&std::fs::read(&certificate).expect("a certificate"));
    let configuration = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: behind-nat}}\n\
         webhooks:\n- name: review.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  failurePolicy: Fail\n  \
         timeoutSeconds: 10\n  clientConfig: {{service: {{name: review, namespace: {0}}}, caBundle: {ca}}}\n  rules: \
         [{{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}}]\n  namespaceSelector: \
         {{matchLabels: {{kubernetes.io/metadata.name: {0}}}}}\n",
        case.namespace
    );
    let file = case.file("webhook.yaml", &configuration);
    case.kubectl(&["create", "-f", &file]);
    let attempt = || {
        let output = case.run(&["create", "configmap", "refused", "--dry-run=server"]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    case.until("the decision of the webhook", attempt, |error| error.contains("refused behind NAT"));
    case.kubectl(&["delete", "-f", &file]);
}
