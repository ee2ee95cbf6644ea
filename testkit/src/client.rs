//! A small HTTPS client: one connection per request, JSON in both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json};
use bytes::{Bytes, BytesMut};
use cluster::pki::CertificateAndKey;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use http_client::{Address, Identity, Stream, Trust};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;

/// The deadline of a single step of a test.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A plain HTTPS client of an API server.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The body as a tree; null where it is no JSON.
    pub fn tree(&self) -> Tree {
        json::decode(&self.bytes).unwrap_or_default()
    }
}

impl Client {
    /// A client with a certificate.
    pub fn new(address: SocketAddr, ca: &CertificateAndKey, user: &CertificateAndKey) -> Client {
        Client::as_user(address, ca, Some(user))
    }

    /// With a client certificate, or without.
    pub fn as_user(address: SocketAddr, ca: &CertificateAndKey, user: Option<&CertificateAndKey>) -> Client {
        Client { address, tls: Arc::new(tls(ca, user)) }
    }

    /// A connection that stays open for several requests.
    pub async fn connect(&self) -> Connection {
        let stream = self.dial().await;
        let shown = stream.server_certificate().expect("the server has a certificate").to_vec();
        let sender = http_client::handshake_http1(stream).await.expect("HTTP");
        Connection { sender, shown }
    }

    /// A new connection without any bytes sent.
    pub async fn dial(&self) -> Stream {
        self.dial_with(&self.tls).await
    }

    async fn dial_with(&self, tls: &Arc<ClientConfig>) -> Stream {
        let address = Address::new(true, &self.address.ip().to_string(), self.address.port());
        http_client::connect(&address, tls).await.expect("the server listens")
    }

    /// A connection of HTTP/2, and what drives it.
    pub async fn http2(
        &self,
    ) -> (hyper::client::conn::http2::SendRequest<Full<Bytes>>, impl Future<Output = hyper::Result<()>> + Send + use<>)
    {
        let tls = Arc::new(http_client::tls::with_alpn(&self.tls, &[http_client::tls::HTTP2]));
        let stream = self.dial_with(&tls).await;
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2")
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> http::Response<Incoming> {
        let mut connection = self.connect().await;
        connection.send(method, path, headers, body).await
    }

    /// Sends a request with headers.
    pub async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        reply(self.send(method, path, headers, body).await).await
    }

    /// A read with a bearer token.
    pub async fn get_with(&self, path: &str, token: &str) -> Reply {
        self.raw("GET", path, &[("authorization", &format!("Bearer {token}"))], Vec::new()).await
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.raw("GET", path, &[], Vec::new()).await
    }

    /// Reads a path until `holds` accepts its object.
    pub async fn until(&self, path: &str, holds: impl Fn(u16, &Tree) -> bool) -> Tree {
        let look = async || {
            let reply = self.get(path).await;
            let tree = reply.tree();
            if holds(reply.code, &tree) { Ok(tree) } else { Err(format!("{tree:?}")) }
        };
        stdx::wait::until_ok_await(path, DEADLINE, look).await
    }

    /// Sends a POST.
    pub async fn post(&self, path: &str, body: &Tree) -> Reply {
        self.raw("POST", path, &[("content-type", "application/json")], json::encode(body, None)).await
    }

    /// Sends a PUT.
    pub async fn put(&self, path: &str, body: &Tree) -> Reply {
        self.raw("PUT", path, &[("content-type", "application/json")], json::encode(body, None)).await
    }

    /// Sends a DELETE.
    pub async fn delete(&self, path: &str) -> Reply {
        self.raw("DELETE", path, &[], Vec::new()).await
    }

    /// `kind` is `json`, `merge`, `strategic-merge` or `apply`.
    pub async fn patch(&self, path: &str, kind: &str, body: &str) -> Reply {
        let content_type = if kind == "apply" {
            "application/apply-patch+yaml".to_string()
        } else {
            format!("application/{kind}-patch+json")
        };
        self.raw("PATCH", path, &[("content-type", &content_type)], body.as_bytes().to_vec()).await
    }

    /// Starts a watch; the response must be 200.
    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.send("GET", path, &[], Vec::new()).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        Watch { body: response.into_body(), buffer: BytesMut::new() }
    }
}

/// A read for a connection of HTTP/2.
pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://tiphys{path}")).body(Full::default()).expect("a request")
}

async fn reply(response: http::Response<Incoming>) -> Reply {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a whole answer").to_bytes();
    Reply { code: parts.status.as_u16(), headers: parts.headers, bytes }
}

/// One connection, which is reused.
pub struct Connection {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    /// The certificate that the server has shown.
    pub shown: Vec<u8>,
}

impl Connection {
    /// Sends a GET over the connection.
    pub async fn get(&mut self, path: &str) -> Reply {
        reply(self.send("GET", path, &[], Vec::new()).await).await
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).expect("a method")).uri(path);
        request = request.header("host", "tiphys").header("user-agent", "testkit/1");
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        tokio::time::timeout(DEADLINE, self.sender.send_request(request))
            .await
            .expect("an answer in time")
            .expect("an answer")
    }
}

/// Trusts a CA, and presents a certificate if given.
pub fn tls(ca: &CertificateAndKey, user: Option<&CertificateAndKey>) -> ClientConfig {
    let trust = Trust::pem(ca.certificate.as_bytes()).expect("a CA bundle");
    let identity = user.map(|user| Identity::pem(user.certificate.as_bytes(), user.key.as_bytes()));
    let identity = identity.transpose().expect("a client certificate");
    http_client::tls::config(&trust, identity.as_ref(), &[]).expect("a configuration")
}

/// A watch that is read event by event.
pub struct Watch {
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    /// The next event, or None at the end.
    pub async fn next(&mut self) -> Option<Tree> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(at + 1);
                return Some(json::decode(&line).expect("an event is JSON"));
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await.expect("an event in time")?;
            if let Ok(data) = frame.expect("the stream goes on").into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// The next events as `TYPE name`.
    pub async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("more events");
            names.push(format!("{} {}", event.str("type"), event.str("object.metadata.name")));
        }
        names
    }
}
