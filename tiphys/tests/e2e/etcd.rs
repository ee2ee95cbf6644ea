//! `kube-apiserver` on a real etcd, with certificates of another CA.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stdx::wait::until_await;

use crate::support::{BINARY, Client, Server, config_map, free_port};

struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(port: u16) {
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port));
    stdx::wait::until_ok(&format!("a server listens on {port}"), Duration::from_secs(20), connect);
}

fn start_etcd(dir: &Path) -> (ChildGuard, u16) {
    start_etcd_with(dir, &[])
}

fn start_etcd_with(dir: &Path, flags: &[&str]) -> (ChildGuard, u16) {
    let (port, peer) = (free_port(), free_port());
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let child = Command::new("etcd")
        .args(["--data-dir", dir.join("etcd").to_str().expect("text"), "--unsafe-no-fsync"])
        .args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)])
        .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
        .args(["--initial-cluster", &format!("default={}", url(peer))])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd is missing: run ./test, which installs it");
    wait_for(port);
    (ChildGuard(child), port)
}

fn start_apiserver(pki: &Path, etcd: u16, prefix: &str, log: &Path) -> (ChildGuard, u16) {
    let port = free_port();
    let file = |name: &str| pki.join(name).display().to_string();
    let child = Command::new(BINARY)
        .arg("kube-apiserver")
        .args([format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_string()])
        .args([format!("--etcd-servers=http://127.0.0.1:{etcd}"), format!("--etcd-prefix={prefix}")])
        .args([format!("--tls-cert-file={}", file("apiserver.crt"))])
        .args([format!("--tls-private-key-file={}", file("apiserver.key"))])
        .args([format!("--client-ca-file={}", file("ca.crt"))])
        .args([format!("--service-account-signing-key-file={}", file("sa.key"))])
        .args([format!("--service-account-key-file={}", file("sa.pub"))])
        .args(["--service-account-issuer=https://issuer.example", "--service-cluster-ip-range=10.50.0.0/16"])
        .args(["--authorization-mode=AlwaysDeny", "--allow-privileged=true", "--logging-format=json"])
        .stderr(std::fs::File::create(log).expect("a file"))
        .spawn()
        .expect("the binary starts");
    wait_for(port);
    (ChildGuard(child), port)
}

/// The port is open before the first objects exist.
async fn until_ready(client: &mut Client) {
    let is_ready = async || client.call("GET", "/readyz", "").await.expect("an answer").0 == 200;
    until_await("the server is ready", Duration::from_secs(20), is_ready).await;
}

fn etcdctl(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &format!("http://127.0.0.1:{port}")])
        .args(arguments)
        .output()
        .expect("etcdctl is missing: run ./test, which installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn the_api_server_keeps_its_objects_in_etcd_as_upstream_does() {
    // Another cluster creates the certificates.
    let mut maker = Server::start();
    maker.signal("-TERM");
    maker.wait();
    let dir = maker.dir.path();
    let pki = dir.join("data/pki");
    let (etcd_process, etcd) = start_etcd(dir);
    let log = dir.join("log");
    let (server, port) = start_apiserver(&pki, etcd, "/registry", &log);
    let mut client = Client::connect(&pki, port).await;
    until_ready(&mut client).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, body) = client.call("POST", maps, &config_map("seen", "by-etcdctl")).await.expect("an answer");
    assert_eq!(code, 201, "{body:?}");
    let shown = etcdctl(etcd, &["get", "/registry/configmaps/default/seen"]);
    assert!(shown.contains("\"kind\":\"ConfigMap\"") && shown.contains("by-etcdctl"), "{shown}");
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    client.call("POST", "/api/v1/namespaces/default/services", service).await.expect("an answer");
    assert!(etcdctl(etcd, &["get", "/registry/services/specs/default/s"]).contains("\"clusterIP\":\"10.50."));
    // A write of another server is visible to the next read.
    let (_second, port) = start_apiserver(&pki, etcd, "/registry", &dir.join("log2"));
    let mut other = Client::connect(&pki, port).await;
    for n in 0..20 {
        let name = format!("n{n}");
        client.call("POST", maps, &config_map(&name, "v")).await.expect("an answer");
        let (code, _) = other.call("GET", &format!("{maps}/{name}"), "").await.expect("an answer");
        assert_eq!(code, 200, "{name}");
        let (_, list) = other.call("GET", maps, "").await.expect("an answer");
        assert!(String::from_utf8_lossy(&list).contains(&format!("\"name\":\"{name}\"")), "{name}");
    }
    assert_eq!(client.call("GET", "/livez", "").await.expect("an answer").0, 200);
    drop(etcd_process);
    let (code, health) = client.call("GET", "/livez", "").await.expect("an answer");
    let health = String::from_utf8_lossy(&health);
    assert!(code == 500 && health.contains("[-]etcd failed: reason withheld\n"), "{code} {health}");
    drop(server);
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.lines().all(|line| line.starts_with("{\"timestamp\":\"")), "{log}");
    assert!(log.contains("\"message\":\"serving\""), "{log}");
}

/// Servers that keep their objects in etcd may share a data directory; its kubeconfig leads to the first.
/// docs/operations/store.md: requests fail with 507 and name the remedy, which works while the server runs.
#[tokio::test]
async fn a_full_etcd_is_explained_and_recovers() {
    let mut maker = Server::start();
    maker.signal("-TERM");
    maker.wait();
    let dir = maker.dir.path();
    let pki = dir.join("data/pki");
    let (_etcd, etcd) = start_etcd_with(dir, &["--quota-backend-bytes", "6000000"]);
    let (_server, port) = start_apiserver(&pki, etcd, "/registry", &dir.join("log"));
    let mut client = Client::connect(&pki, port).await;
    until_ready(&mut client).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = "x".repeat(900_000);
    let mut written = 0;
    let (code, body) = loop {
        let (code, body) =
            client.call("POST", maps, &config_map(&format!("n{written}"), &large)).await.expect("an answer");
        if code != 201 {
            break (code, body);
        }
        written += 1;
        assert!(written < 20, "the quota is reached");
    };
    let text = String::from_utf8_lossy(&body);
    assert_eq!(code, 507, "{text}");
    for part in ["tiphys store compact", "tiphys store defrag --disarm", "NOSPACE"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(written > 0 && etcdctl(etcd, &["alarm", "list"]).contains("NOSPACE"));
    // Everything is still read, and nothing is written.
    assert_eq!(client.call("GET", &format!("{maps}/n0"), "").await.expect("an answer").0, 200);
    assert_eq!(client.call("POST", maps, &config_map("small", "v")).await.expect("an answer").0, 507);

    // The user makes room by what etcd still accepts, and follows the message.
    etcdctl(etcd, &["del", "--prefix", "/registry/configmaps/default/n"]);
    for command in [&["compact"][..], &["defrag", "--disarm"]] {
        let server = format!("--etcd-servers=http://127.0.0.1:{etcd}");
        let output = Command::new(BINARY).arg("store").args(command).arg(server).output().expect("the binary runs");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let written = async || client.call("POST", maps, &config_map("small", "v")).await.expect("an answer").0 == 201;
    until_await("a write after the remedy", Duration::from_secs(20), written).await;
    assert!(!etcdctl(etcd, &["alarm", "list"]).contains("NOSPACE"));
}

#[test]
fn a_second_server_on_a_data_directory_leaves_the_kubeconfig() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_etcd, etcd) = start_etcd(dir.path());
    let start = |port: u16| {
        let child = Command::new(BINARY)
            .args(["kube-apiserver", "--bind-address=127.0.0.1", "--authorization-mode=Node,RBAC"])
            .args([format!("--secure-port={port}"), format!("--etcd-servers=http://127.0.0.1:{etcd}")])
            .args([format!("--data-dir={}", dir.path().join("data").display())])
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        wait_for(port);
        ChildGuard(child)
    };
    let kubeconfig = || std::fs::read_to_string(dir.path().join("data/kubeconfig")).unwrap_or_default();
    let (first, second) = (free_port(), free_port());
    let _first = start(first);
    until("a kubeconfig", || kubeconfig().contains(&format!(":{first}")));
    let _second = start(second);
    let url = format!("https://127.0.0.1:{second}/readyz");
    until("the second server", || {
        let output = Command::new("curl").args(["-sk", &url]).output().expect("curl is there");
        output.stdout == b"ok"
    });
    assert!(kubeconfig().contains(&format!(":{first}")), "it is as it was");
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    stdx::wait::until(what, Duration::from_secs(30), holds);
}
