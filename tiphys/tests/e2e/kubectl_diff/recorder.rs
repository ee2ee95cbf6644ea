//! A proxy that records method, path, query and content type of each request, and acts as the administrator.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_client::{Address, Identity, Trust, tls};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::support::Server;

type Log = Arc<Mutex<Vec<String>>>;

/// The proxy of one client.
pub struct Recorder {
    pub address: SocketAddr,
    log: Log,
}

impl Recorder {
    /// Starts a proxy in front of a server.
    pub async fn start(server: &Server) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let log = Log::default();
        let target = Arc::new(Target::new(server.dir.path().join("data/pki"), server.port));
        tokio::spawn(serve(listener, target, log.clone()));
        Recorder { address, log }
    }

    /// The requests since the last call, sorted, without those for discovery.
    pub fn take(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        requests.sort();
        requests
    }
}

/// The server behind the proxy.
struct Target {
    address: Address,
    tls: Arc<rustls::ClientConfig>,
}

impl Target {
    fn new(pki: PathBuf, port: u16) -> Target {
        let read = |name: &str| std::fs::read(pki.join(name)).expect("a file of the PKI");
        let trust = Trust::pem(&read("ca.crt")).expect("a CA bundle");
        let identity = Identity::pem(&read("admin.crt"), &read("admin.key")).expect("a certificate");
        let config = tls::config(&trust, Some(&identity), &[tls::HTTP1]).expect("a configuration");
        let address = Address { name: "localhost".to_string(), ..Address::new(true, "127.0.0.1", port) };
        Target { address, tls: Arc::new(config) }
    }
}

async fn serve(listener: TcpListener, target: Arc<Target>, log: Log) {
    while let Ok((stream, _)) = listener.accept().await {
        let (target, log) = (target.clone(), log.clone());
        tokio::spawn(async move {
            let handle = service_fn(|request| forward(request, target.clone(), log.clone()));
            // A client that has what it needs closes the connection.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), handle).await;
        });
    }
}

/// Discovery, OpenAPI documents and versions depend on caches.
fn is_about_types(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api" | "apis" | "version", ..] if parts.len() == 1 => true,
        ["api", _] | ["apis", _] | ["apis", _, _] | ["openapi", ..] => true,
        _ => false,
    }
}

async fn forward(request: Request<Incoming>, target: Arc<Target>, log: Log) -> Result<Response<Incoming>, Infallible> {
    let (mut head, body) = request.into_parts();
    if !is_about_types(head.uri.path()) {
        let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Upstream names a content type for requests without a body too.
        let kind = if head.method == "GET" || head.method == "DELETE" { "" } else { kind };
        // The encoding of an object is each client's choice.
        let kind = if kind == "application/vnd.kubernetes.protobuf" { "application/json" } else { kind };
        let line = format!("{} {} {kind}", head.method, head.uri);
        log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
    head.headers.insert(HOST, HeaderValue::from_static("localhost"));
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let stream = http_client::connect(&target.address, &target.tls).await.expect("the server listens");
    let request: Request<Full<Bytes>> = Request::from_parts(head, Full::new(body));
    Ok(http_client::send_once(stream, request).await.expect("the server responds"))
}
