//! Proxies between the client and the server, and the client as a proxy.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Reply, Tunnel, User, Web, json, pki, read_head};

const VERSION: &str = r#"{"gitVersion":"v9"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_to_the_server_through_any_proxy() {
    let (server_pki, proxy_pki) = (pki(2100), pki(2100));
    let server = Web::start_tls(&server_pki, |_| json(VERSION)).await;
    let plain = Tunnel::start(None).await;
    let secure = Tunnel::start(Some(proxy_pki.acceptor.clone())).await;
    for (proxy, url) in
        [(&plain, format!("http://{}", plain.address)), (&secure, format!("https://u:p@{}", secure.address))]
    {
        let user = User::new();
        // The CA bundle is for the server and for an HTTPS proxy.
        user.write(".kube/ca.crt", &format!("{}{}", server_pki.ca, proxy_pki.ca));
        let fields = format!(", certificate-authority: ca.crt, proxy-url: '{url}'");
        user.kubeconfig(&format!("https://{}", server.address), &fields);
        let outcome = user.run("get --raw /version");
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), VERSION), "{url}: {outcome:?}");
        let heads = proxy.heads();
        assert!(heads[0].starts_with(&format!("CONNECT {} ", server.address)), "{url}: {heads:?}");
        assert_eq!(heads[0].contains("Proxy-Authorization: Basic dTpw"), url.contains("u:p"), "{heads:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_requests_through_an_https_proxy() {
    let pki = pki(2100);
    let server = Web::start(|_| json(VERSION)).await;
    let proxy = Tunnel::start(Some(pki.acceptor.clone())).await;
    let user = User::new();
    user.write(".kube/ca.crt", &pki.ca);
    let fields = format!(", certificate-authority: ca.crt, proxy-url: 'https://{}'", proxy.address);
    user.kubeconfig(&format!("http://{}", server.address), &fields);
    let outcome = user.run("get --raw /version");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), VERSION), "{outcome:?}");
    assert!(proxy.heads()[0].starts_with(&format!("GET http://{}/version ", server.address)), "{:?}", proxy.heads());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_https_proxy_needs_a_trusted_certificate() {
    let (trusted, other) = (pki(2100), pki(2100));
    let server = Web::start(|_| json(VERSION)).await;
    let proxy = Tunnel::start(Some(other.acceptor.clone())).await;
    let user = User::new();
    user.write(".kube/ca.crt", &trusted.ca);
    let fields = format!(", certificate-authority: ca.crt, proxy-url: 'https://{}'", proxy.address);
    user.kubeconfig(&format!("http://{}", server.address), &fields);
    user.fails("get --raw /version", "x509: certificate signed by unknown authority");
    assert!(server.requests().is_empty());
}

/// `kubectl proxy`, which is killed at the end.
struct Proxy(Child, String);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_proxy(user: &User, flags: &str) -> Proxy {
    let mut child = user.command(&format!("proxy --port=0 {flags}")).stderr(Stdio::inherit()).spawn().expect("kubectl");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    let address = line.trim().rsplit(' ').next().expect("an address").to_string();
    Proxy(child, address)
}

async fn request(proxy: &Proxy, head: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&proxy.1).await.expect("it listens");
    stream.write_all(head.replace('\n', "\r\n").as_bytes()).await.expect("it reads");
    let head = read_head(&mut stream).await.expect("a response");
    (stream, head)
}

/// A server that agrees to an upgrade and then repeats what it reads.
async fn echo() -> (std::net::SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let head = read_head(&mut stream).await.expect("a request");
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";
        stream.write_all(agreed).await.expect("it reads");
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        head
    });
    (address, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgraded_connections_are_passed_on() {
    let (address, server) = echo().await;
    let user = User::new();
    user.kubeconfig(&format!("http://{address}"), "");
    let proxy = start_proxy(&user, "--token=secret");
    let head = "GET /api/v1/namespaces/n/pods/p/portforward?ports=1 HTTP/1.1\nHost: localhost\nConnection: Upgrade\n\
                Upgrade: test\nX-Stream-Protocol-Version: v1\n\n";
    let (mut stream, answer) = request(&proxy, head).await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.to_lowercase().contains("upgrade: test"), "{answer}");
    stream.write_all(b"both ways").await.expect("it is open");
    let mut back = [0; 9];
    stream.read_exact(&mut back).await.expect("an echo");
    assert_eq!(&back, b"both ways");
    drop(stream);
    let seen = server.await.expect("the end").to_lowercase();
    assert!(seen.starts_with("get /api/v1/namespaces/n/pods/p/portforward?ports=1 "), "{seen}");
    assert!(seen.contains("authorization: bearer secret") && seen.contains("x-stream-protocol-version: v1"), "{seen}");
    // By default nothing that runs commands gets through.
    let (_, answer) = request(&proxy, "GET /api/v1/namespaces/n/pods/p/exec HTTP/1.1\nHost: localhost\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let (_, answer) = request(&proxy, "GET /api HTTP/1.1\nHost: evil.example\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_passed_on() {
    let server = Web::start(|_| {
        Reply::Bytes(b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nX-A: b\r\nContent-Length: 2\r\n\r\nno".to_vec())
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let proxy = start_proxy(&user, "--token=secret --api-prefix=/k8s");
    let head =
        "POST /k8s/x?y=z HTTP/1.1\nHost: 127.0.0.1:1\nContent-Type: text/odd\nCookie: a=b\nContent-Length: 0\n\n";
    let (_, answer) = request(&proxy, head).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.to_lowercase().contains("x-a: b"), "{answer}");
    let seen = server.requests().concat().to_lowercase();
    assert!(seen.starts_with("post /x?y=z "), "{seen}");
    for want in ["content-type: text/odd\r\n", "cookie: a=b\r\n", "authorization: bearer secret\r\n"] {
        assert!(seen.contains(want), "{want} is not in {seen}");
    }
    assert!(!seen.contains("accept-encoding"), "{seen}");
}
