//! The client's program, and small web servers.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The program of `examples/kubectl.rs`, which cargo builds with the tests.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let path = test.parent().and_then(Path::parent).expect("a target directory").join("examples/kubectl");
    assert!(path.exists(), "{} is missing: cargo builds it with the tests", path.display());
    path
}

/// A user with a home of their own.
pub struct User {
    pub home: TempDir,
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl User {
    pub fn new() -> User {
        User { home: tempfile::tempdir().expect("a directory") }
    }

    /// Writes a file of the home; returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    }

    /// A kubeconfig whose server is at a URL, with more fields of the cluster.
    pub fn kubeconfig(&self, server: &str, fields: &str) {
        self.kubeconfig_of(server, fields, "{}");
    }

    /// A kubeconfig with credentials.
    pub fn kubeconfig_of(&self, server: &str, fields: &str, credentials: &str) {
        self.write(
            ".kube/config",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {{name: c, cluster: {{server: '{server}'{fields}}}}}\n\
                 contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\nusers:\n- {{name: u, user: {credentials}}}\n"
            ),
        );
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(program());
        command.args(line.split_whitespace()).env_clear().env("HOME", self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, line: &str) -> Outcome {
        outcome(self.command(line).output().expect("kubectl starts"))
    }

    /// Runs a command with a standard input.
    pub fn run_with(&self, line: &str, input: &str) -> Outcome {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().expect("kubectl starts");
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        outcome(child.wait_with_output().expect("kubectl ends"))
    }

    /// Runs a command that fails with a text.
    pub fn fails(&self, line: &str, want: &str) {
        let outcome = self.run(line);
        assert!(outcome.code == Some(1) && outcome.err.contains(want), "{line}: {want:?} is not in {outcome:?}");
    }
}

fn outcome(output: Output) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// What a server does with a request.
pub enum Reply {
    /// These bytes, then it closes the connection.
    Bytes(Vec<u8>),
    /// These bytes, then nothing more, with the connection open.
    Stall(Vec<u8>),
    Close,
}

/// A response with a body.
pub fn response(status: &str, kind: &str, body: &str) -> Reply {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    Reply::Bytes(format!("{head}Connection: close\r\n\r\n{body}").into_bytes())
}

pub fn json(body: &str) -> Reply {
    response("200 OK", "application/json", body)
}

/// A server's certificate and its CA, in PEM.
pub struct Pki {
    pub ca: String,
    pub acceptor: TlsAcceptor,
}

/// A certificate for 127.0.0.1 with an end.
pub fn pki(last_year: i32) -> Pki {
    pki_with(last_year, false).0
}

/// The same, and the certificate and key of a client, without which the server accepts no connection.
pub fn pki_for_clients() -> (Pki, String, String) {
    pki_with(2100, true)
}

fn pki_with(last_year: i32, needs_client: bool) -> (Pki, String, String) {
    let mut params = CertificateParams::new(vec!["ca".to_string()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).expect("a CA");
    let ca = ca.pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").der().clone();
    let config =
        ServerConfig::builder_with_provider(http_client::tls::provider()).with_safe_default_protocol_versions();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = http_client::tls::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
    let config = config.expect("versions");
    let config = if needs_client { config.with_client_cert_verifier(verifier) } else { config.with_no_client_auth() };
    let config = config.with_single_cert(vec![certificate], key.into()).expect("a key that fits");
    let client_key = KeyPair::generate().expect("a key");
    let client = CertificateParams::new(vec!["client".to_string()]).expect("a name");
    let client = client.signed_by(&client_key, &issuer).expect("a certificate").pem();
    (Pki { ca, acceptor: TlsAcceptor::from(Arc::new(config)) }, client, client_key.serialize_pem())
}

/// A web server that records requests with their bodies.
pub struct Web {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

type Respond = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

impl Web {
    pub async fn start(respond: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Web {
        Web::serve(None, Arc::new(respond)).await
    }

    pub async fn start_tls(pki: &Pki, respond: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Web {
        Web::serve(Some(pki.acceptor.clone()), Arc::new(respond)).await
    }

    async fn serve(tls: Option<TlsAcceptor>, respond: Respond) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, respond, log) = (tls.clone(), respond.clone(), log.clone());
                tokio::spawn(async move {
                    match tls {
                        None => exchange(stream, respond, log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                exchange(stream, respond, log).await;
                            }
                        }
                    }
                });
            }
        });
        Web { address, requests }
    }

    /// All requests.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Waits until a request has a text.
    pub async fn wait_for(&self, text: &str) {
        let holds = || self.requests().iter().any(|head| head.contains(text));
        stdx::wait::until_async("a request", Duration::from_secs(20), holds).await;
    }
}

/// Reads up to the empty line behind the head.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, respond: Respond, log: Arc<Mutex<Vec<String>>>) {
    let Some(mut head) = read_head(&mut stream).await else { return };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    head.push_str(&String::from_utf8_lossy(&body));
    log.lock().expect("no panic").push(head.clone());
    let (bytes, stalls) = match respond(&head) {
        Reply::Close => return,
        Reply::Bytes(bytes) => (bytes, false),
        Reply::Stall(bytes) => (bytes, true),
    };
    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
        return;
    }
    if stalls {
        // Until the client closes.
        let _ = stream.read_u8().await;
    }
    let _ = stream.shutdown().await;
}

/// A proxy for CONNECT and for absolute URIs, which records the heads of requests.
pub struct Tunnel {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Tunnel {
    pub async fn start(tls: Option<TlsAcceptor>) -> Tunnel {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let log = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, log) = (tls.clone(), log.clone());
                tokio::spawn(async move {
                    match tls {
                        None => tunnel(stream, log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                tunnel(stream, log).await;
                            }
                        }
                    }
                });
            }
        });
        Tunnel { address, heads }
    }

    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

async fn tunnel(mut stream: impl AsyncRead + AsyncWrite + Unpin, log: Arc<Mutex<Vec<String>>>) {
    let Some(head) = read_head(&mut stream).await else { return };
    log.lock().expect("no panic").push(head.clone());
    let target = head.split_whitespace().nth(1).unwrap_or_default().to_string();
    if head.starts_with("CONNECT ") {
        let Ok(mut server) = TcpStream::connect(target).await else { return };
        if stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
        }
        return;
    }
    let authority = target.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let Ok(mut server) = TcpStream::connect(authority).await else { return };
    let rest = target.split_once(authority).map_or("/", |(_, rest)| rest);
    if server.write_all(head.replacen(&target, rest, 1).as_bytes()).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    }
}

/// Responses to discovery: pods and configmaps; None for other requests.
pub fn discovery(head: &str) -> Option<Reply> {
    let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let resource = |plural: &str, kind: &str, short: &str| {
        format!(
            r#"{{"resource":"{plural}","responseKind":{{"group":"","version":"v1","kind":"{kind}"}},"scope":"Namespaced","singularResource":"{}","verbs":["get","list","watch"],"shortNames":["{short}"]}}"#,
            kind.to_lowercase()
        )
    };
    let list = |items: &str| {
        response(
            "200 OK",
            kind,
            &format!(r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{items}]}}"#),
        )
    };
    match path(head) {
        "/api" => {
            let resources = [resource("pods", "Pod", "po"), resource("configmaps", "ConfigMap", "cm")].join(",");
            Some(list(&format!(
                r#"{{"metadata":{{"name":""}},"versions":[{{"version":"v1","resources":[{resources}]}}]}}"#
            )))
        }
        "/apis" => Some(list("")),
        _ => None,
    }
}

/// The path and query of a request.
pub fn path(head: &str) -> &str {
    head.split_whitespace().nth(1).unwrap_or_default()
}

/// A table with a row for each name.
pub fn table(names: &[&str]) -> String {
    let rows: Vec<String> = names
        .iter()
        .map(|name| format!(r#"{{"cells":["{name}"],"object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"{name}","namespace":"default"}}}}}}"#))
        .collect();
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"5"}},"columnDefinitions":[{{"name":"Name","type":"string","format":"name","description":"","priority":0}}],"rows":[{}]}}"#,
        rows.join(",")
    )
}
