//! Initializers by the example under `examples/`: the real binary, kubectl's proxy and a Python script.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::support::{BINARY, Client, Server, root, tool};

/// A child process that is killed at the end of the test, and its first line.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn helper(command: &mut Command) -> (ChildGuard, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    std::thread::spawn(move || lines.for_each(drop));
    (ChildGuard(child), first)
}

/// `kube-apiserver` on a separate data directory, ready.
fn start(flags: &[&str]) -> Server {
    let dir = Arc::new(tempfile::tempdir().expect("a directory"));
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let process = Command::new(BINARY)
        .args(["kube-apiserver", "--bind-address=127.0.0.1", &format!("--secure-port={port}"), "--data-dir"])
        .arg(dir.path().join("data"))
        .args(flags)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let server = Server { process, dir, port };
    // The kubeconfig is written last.
    server.wait_for_kubeconfig();
    server
}

fn proxy(server: &Server) -> (ChildGuard, String) {
    let mut command = Command::new(tool("kubectl-1.20/usr/bin/kubectl"));
    command.env("KUBECONFIG", server.kubeconfig()).args(["proxy", "--port=0"]);
    let (child, line) = helper(&mut command);
    let address = line.rsplit(' ').next().expect("an address").to_string();
    (child, format!("http://{address}"))
}

fn pod(name: &str, sidecar: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"sidecar":"{sidecar}"}}}},
        "spec":{{"automountServiceAccountToken":false,"containers":[{{"name":"c","image":"app:1"}}]}}}}"#
    )
}

async fn call(client: &mut Client, method: &str, path: &str, body: &str) -> (u16, String) {
    let (code, bytes) = client.call(method, path, body).await.expect("an answer");
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
const CONFIGURATION: &str = r#"{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration",
    "metadata":{"name":"sidecar"},"initializers":[{"name":"sidecar.example.com","rules":[
    {"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}"#;

async fn prepare(client: &mut Client) {
    let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    let (code, text) = call(client, "POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    assert!(matches!(code, 201 | 409), "{text}");
    let (code, text) = call(client, "POST", CONFIGURATIONS, CONFIGURATION).await;
    assert_eq!(code, 201, "{text}");
}

#[tokio::test]
async fn sidecars_are_injected_before_objects_are_visible() {
    let server = start(&["--enable-admission-plugins=Initializers"]);
    let mut client = server.client().await;
    prepare(&mut client).await;
    let (_proxy, base) = proxy(&server);
    let script = root().join("examples/sidecar-initializer/sidecar.py");
    let (_script, line) = helper(Command::new("python3").arg(script).arg(base));
    assert_eq!(line, "watching");
    let (code, text) = call(&mut client, "POST", PODS, &pod("a", "true")).await;
    assert_eq!(code, 201, "{text}");
    assert!(text.contains(r#""name":"sidecar""#) && !text.contains("initializers"), "{text}");
    let (code, text) = call(&mut client, "POST", PODS, &pod("b", "refused")).await;
    assert_eq!(code, 403, "{text}");
    assert!(text.contains("no sidecar for you") && text.contains(r#""reason":"Forbidden""#), "{text}");
    let (code, _) = call(&mut client, "GET", &format!("{PODS}/b?includeUninitialized=true"), "").await;
    assert_eq!(code, 404, "what has failed is gone");
}

#[tokio::test]
async fn uninitialized_objects_are_visible_on_request() {
    let server = start(&["--enable-admission-plugins=Initializers"]);
    let mut client = server.client().await;
    prepare(&mut client).await;
    let all = format!("{PODS}?includeUninitialized=true");
    let (code, text) = call(&mut client, "POST", &all, &pod("a", "true")).await;
    assert_eq!(code, 201, "{text}");
    assert!(text.contains(r#""initializers":{"pending":[{"name":"sidecar.example.com"}]}"#), "{text}");
    let one = format!("{PODS}/a");
    assert_eq!(call(&mut client, "GET", &one, "").await.0, 404);
    assert_eq!(call(&mut client, "GET", &format!("{one}?includeUninitialized=true"), "").await.0, 200);
    assert!(!call(&mut client, "GET", PODS, "").await.1.contains(r#""name":"a""#));
    assert!(call(&mut client, "GET", &all, "").await.1.contains(r#""name":"a""#));
    let empty = "?watch=true&timeoutSeconds=1";
    assert!(!call(&mut client, "GET", &format!("{PODS}{empty}"), "").await.1.contains("ADDED"));
    assert_eq!(call(&mut client, "POST", PODS, &pod("a", "true")).await.0, 409);

    let (code, text) = call(&mut client, "POST", &format!("{PODS}?timeout=200ms"), &pod("b", "true")).await;
    assert_eq!(code, 504, "{text}");
    let wrong = text_of(&mut client, &format!("{one}?includeUninitialized=true")).await;
    let wrong = wrong.replace("sidecar.example.com", "other.example.com");
    let (code, text) = call(&mut client, "PUT", &one, &wrong).await;
    assert_eq!(code, 422, "{text}");

    let good = text_of(&mut client, &format!("{one}?includeUninitialized=true")).await;
    let good = good
        .replace(r#""initializers":{"pending":[{"name":"sidecar.example.com"}]}"#, r#""initializers":{"pending":[]}"#);
    let (code, text) = call(&mut client, "PUT", &one, &good).await;
    assert_eq!(code, 200, "{text}");
    assert_eq!(call(&mut client, "GET", &one, "").await.0, 200);
    let (code, text) = call(&mut client, "PUT", &one, &wrong).await;
    assert_eq!(code, 409, "the version is old: {text}");
}

async fn text_of(client: &mut Client, path: &str) -> String {
    call(client, "GET", path, "").await.1
}

/// Without the plugin, neither the kind nor the field exists.
#[tokio::test]
async fn initializers_are_absent_without_the_plugin() {
    let server = start(&[]);
    let mut client = server.client().await;
    assert_eq!(call(&mut client, "GET", CONFIGURATIONS, "").await.0, 404);
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","initializers":{"pending":[]}}}"#;
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    let (code, text) = call(&mut client, "POST", path, object).await;
    assert_eq!(code, 400, "{text}");
    assert!(text.contains("unknown field \\\"metadata.initializers\\\""), "{text}");
    assert!(!text_of(&mut client, "/apis/admissionregistration.k8s.io").await.contains("v1alpha1"));
}
