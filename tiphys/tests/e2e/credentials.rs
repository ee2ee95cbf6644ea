//! Certificates and secrets of the real process: rotation while it runs, files that change, and a log without secrets.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http_body_util::BodyExt;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::support::{BINARY, Client, Server, free_port, request};

const DEADLINE: Duration = Duration::from_secs(20);

async fn until(what: &str, is_true: impl AsyncFnMut() -> bool) {
    stdx::wait::until_await(what, DEADLINE, is_true).await;
}

fn tiphys(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().expect("the binary starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn first_certificate(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(path).expect("a certificate").to_vec()
}

#[tokio::test]
async fn certificates_are_listed_and_rotated_while_the_cluster_runs() {
    let server = Server::start_with(&["--tls-san", "api.example,10.9.8.7"]);
    let data = server.dir.path().join("data");
    let (pki, text) = (data.join("pki"), data.to_str().expect("text"));
    let listed = tiphys(&["certs", "--data-dir", text]);
    for part in ["kubernetes-admin (system:masters)", "system:kube-scheduler", "api.example", "10.9.8.7"] {
        assert!(listed.contains(part), "{part} is not in\n{listed}");
    }
    let shown = async || server.client().await.shown;
    let (serving, kubeconfig) =
        (pki.join("apiserver.crt"), std::fs::read_to_string(server.kubeconfig()).expect("a file"));
    let old = first_certificate(&serving);
    assert_eq!(shown().await, old);
    assert_eq!(
        tiphys(&["certs", "rotate", "--data-dir", text, "apiserver", "admin"]),
        "admin rotated\napiserver rotated\n"
    );
    assert_ne!(first_certificate(&serving), old);
    until("the new certificate is shown", async || shown().await == first_certificate(&serving)).await;
    let written = async || std::fs::read_to_string(server.kubeconfig()).expect("a file") != kubeconfig;
    until("the kubeconfig has the new certificate", written).await;

    // A CA is replaced: its certificates are new, and clients of the old one are still trusted.
    let mut open = server.client().await;
    assert!(tiphys(&["certs", "rotate", "ca", "--data-dir", text]).starts_with("ca rotated\nadmin rotated\n"));
    until("a certificate of the new CA is shown", async || shown().await == first_certificate(&serving)).await;
    let (code, _) = server.client().await.call("GET", "/api/v1/nodes", "").await.expect("an answer");
    let (code_of_old, _) = open.call("GET", "/api/v1/nodes", "").await.expect("an answer");
    assert_eq!((code, code_of_old), (200, 200));
}

#[test]
fn unknown_certificates_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let output =
        Command::new(BINARY).args(["certs", "--data-dir"]).arg(dir.path()).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("pki is not a directory of certificates"), "{text}");
}

/// A separate `kube-apiserver`, with its log in a file.
struct Apiserver {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Drop for Apiserver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Apiserver {
    /// Flags refer to files of the directory as `DIR`.
    async fn start(files: &[(&str, &str)], flags: &[&str]) -> Apiserver {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("a file");
        }
        let port = free_port();
        let place = dir.path().to_str().expect("text");
        let child = Command::new(BINARY)
            .arg("kube-apiserver")
            .args([format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_string()])
            .arg(format!("--data-dir={place}/data"))
            .args(flags.iter().map(|flag| flag.replace("DIR", place)))
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("log")).expect("a file"))
            .spawn()
            .expect("the binary starts");
        let server = Apiserver { child, dir, port };
        let connected = async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        until(&format!("the server listens: {}", server.log()), connected).await;
        let ready = async || server.log().contains("serving address");
        until("the server is ready", ready).await;
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("a log")
    }

    fn pki(&self) -> PathBuf {
        self.dir.path().join("data/pki")
    }

    /// A request without a client certificate.
    async fn ask(&self, method: &str, path: &str, authorization: &str, body: &str) -> (u16, String) {
        let mut client = Client::without_certificate(&self.pki(), self.port).await;
        let mut request = request(method, path, body);
        request.headers_mut().insert("authorization", authorization.parse().expect("a value"));
        let response = client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test]
async fn secrets_never_reach_logs_or_responses() {
    let files = [("tokens", "T0kenOfJane,jane,7,system:masters\n"), ("passwords", "Passw0rdOfJoe,joe,8\n")];
    let flags = [
        "--v=10",
        "--authorization-mode=RBAC",
        "--token-auth-file=DIR/tokens",
        "--basic-auth-file=DIR/passwords",
        "--enable-bootstrap-token-auth",
    ];
    let server = Apiserver::start(&files, &flags).await;
    let jane = "Bearer T0kenOfJane";
    let mut printed = String::new();
    let mut ask = async |method: &str, path: &str, authorization: &str, body: &str, want: u16| {
        let (code, text) = server.ask(method, path, authorization, body).await;
        assert_eq!(code, want, "{method} {path}: {text}");
        printed.push_str(&text);
    };
    let basic = |text: &str| format!("Basic {}", encoded(text));
    ask("GET", "/api", jane, "", 200).await;
    ask("GET", "/api", "Bearer Wr0ngToken", "", 401).await;
    ask("GET", "/api", &basic("joe:Passw0rdOfJoe"), "", 200).await;
    ask("GET", "/api", &basic("joe:Wr0ngPassword"), "", 401).await;
    ask("GET", "/api", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJFdmlsIn0.Wr0ngSignature", "", 401).await;
    ask("GET", "/api", "Bearer abcdef.wr0ngsecret12345", "", 401).await;
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"V4lueOfSecret","#;
    ask("POST", "/api/v1/namespaces/default/secrets", jane, secret, 400).await;
    ask("GET", "/metrics", jane, "", 200).await;
    let everything = format!("{}{printed}", server.log());
    let hidden = [
        "T0kenOfJane",
        "Wr0ngToken",
        "Passw0rdOfJoe",
        &encoded("joe:Passw0rdOfJoe"),
        "Wr0ngPassword",
        &encoded("joe:Wr0ngPassword"),
        "Wr0ngSignature",
        "wr0ngsecret12345",
        "V4lueOfSecret",
        "PRIVATE KEY",
    ];
    for word in hidden {
        let line = everything.lines().find(|line| line.contains(word));
        assert_eq!(line, None, "{word}");
    }
    // The log names the failures.
    assert!(server.log().contains("authentication failed"), "{}", server.log());
}

fn encoded(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |chunk: &[u8]| {
        let bits = chunk.iter().chain([0, 0].iter()).take(3).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        let letter =
            |at: usize| if at > chunk.len() { '=' } else { LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char };
        (0..4).map(letter).collect::<String>()
    };
    text.as_bytes().chunks(3).map(digits).collect()
}

#[test]
fn a_file_with_an_error_is_named_with_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens");
    std::fs::write(&path, "a,b,c\nS3cret,x\n").expect("a file");
    let output = Command::new(BINARY)
        .args(["kube-apiserver", "--secure-port=6443", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg(format!("--token-auth-file={}", path.display()))
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("tokens: line 2: at least 3 columns") && !text.contains("S3cret"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn reloads_files_of_flags() {
    // The certificates come from the directory of another cluster.
    let other = Server::start();
    let theirs = other.dir.path().join("data/pki");
    let read = |name: &str| std::fs::read_to_string(theirs.join(name)).expect("a file");
    let files =
        [("serving.crt", read("apiserver.crt")), ("serving.key", read("apiserver.key")), ("ca.crt", read("ca.crt"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let flags =
        ["--tls-cert-file=DIR/serving.crt", "--tls-private-key-file=DIR/serving.key", "--client-ca-file=DIR/ca.crt"];
    let server = Apiserver::start(&files, &flags).await;
    let client = async || Client::connect(&theirs, server.port).await;
    let mut open = client().await;
    let mut code = async || open.call("GET", "/api/v1/nodes", "").await.expect("an answer").0;
    assert_eq!(code().await, 200);

    tiphys(&["certs", "rotate", "apiserver", "--data-dir", other.dir.path().join("data").to_str().expect("text")]);
    for (name, source) in [("serving.key", "apiserver.key"), ("serving.crt", "apiserver.crt")] {
        std::fs::copy(theirs.join(source), server.dir.path().join(name)).expect("a file");
    }
    let new = first_certificate(&theirs.join("apiserver.crt"));
    until("the changed certificate is shown", async || client().await.shown == new).await;

    std::fs::copy(theirs.join("front-proxy-ca.crt"), server.dir.path().join("ca.crt")).expect("a file");
    until("the removed CA no longer counts", async || code().await == 401).await;
}
