//! A registry whose behaviour a test controls: it sends wrong data, breaks off, redirects and requires tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::images::Digest;
use serde_json::json;
use stdx::sync::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Including its query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The start of a range request.
    pub fn range(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The connection is closed after this many bytes of the body.
    pub cut: Option<usize>,
}

impl Response {
    pub fn of(status: u16, body: impl Into<Vec<u8>>) -> Response {
        Response { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    pub fn with(mut self, name: &str, value: &str) -> Response {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn cut(mut self, at: usize) -> Response {
        self.cut = Some(at);
        self
    }

    /// The content from this offset.
    pub fn part(content: &[u8], from: usize) -> Response {
        let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
        Response::of(206, &content[from..]).with("Content-Range", &range)
    }
}

pub type Handler = dyn Fn(&Request) -> Response + Send + Sync;

pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(handler: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Server {
        Server::listen(TcpListener::bind("127.0.0.1:0").await.unwrap(), None, handler)
    }

    pub fn listen(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Server {
        let address = listener.local_addr().unwrap().to_string();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (log, handler): (_, Arc<Handler>) = (seen.clone(), Arc::new(handler));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, handler, tls) = (log.clone(), handler.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &log, &*handler).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &log, &*handler).await;
                            }
                        }
                    }
                });
            }
        });
        Server { address, seen, task }
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().clone()
    }

    pub fn count(&self, path: &str) -> usize {
        self.seen().iter().filter(|request| request.path.contains(path)).count()
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, log: &Mutex<Vec<Request>>, handler: &Handler) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let answer = handler(&request);
        let bare = request.method == "HEAD";
        log.lock().push(request);
        let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
        let has_length = answer.headers.iter().any(|(name, _)| name == "Content-Length");
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !has_length {
            head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
        }
        let body = &answer.body[..answer.cut.unwrap_or(answer.body.len()).min(answer.body.len())];
        let sent = stream.write_all(format!("{head}\r\n").as_bytes()).await;
        if sent.is_err() || (!bare && stream.write_all(body).await.is_err()) || answer.cut.is_some() || has_length {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

pub async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&buffer[end..end + length]).into_owned();
    buffer.drain(..end + length);
    Some(Request { method, path, headers, body })
}

/// An image in a registry: its manifest, and blobs by digest.
#[derive(Clone)]
pub struct Content {
    pub manifest: Vec<u8>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub id: String,
    pub layers: Vec<String>,
}

impl Content {
    /// An image of these layers, each as (blob, uncompressed content).
    pub fn of(layers: &[(Vec<u8>, Vec<u8>)]) -> Content {
        let diff_ids: Vec<Digest> = layers.iter().map(|(_, plain)| Digest::of(plain)).collect();
        let config =
            json!({"os": "linux", "architecture": architecture(), "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = serde_json::to_vec(&config).unwrap();
        let describe =
            |media: &str, bytes: &[u8]| json!({"mediaType": media, "digest": Digest::of(bytes), "size": bytes.len()});
        let listed: Vec<_> =
            layers.iter().map(|(blob, _)| describe("application/vnd.oci.image.layer.v1.tar", blob)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": describe("application/vnd.oci.image.config.v1+json", &config),
            "layers": listed,
        });
        let names: Vec<String> = layers.iter().map(|(blob, _)| Digest::of(blob).to_string()).collect();
        let mut blobs: BTreeMap<String, Vec<u8>> =
            layers.iter().map(|(blob, _)| (Digest::of(blob).to_string(), blob.clone())).collect();
        let id = Digest::of(&config).to_string();
        blobs.insert(id.clone(), config);
        Content { manifest: serde_json::to_vec(&manifest).unwrap(), blobs, id, layers: names }
    }

    pub fn plain(layers: &[Vec<u8>]) -> Content {
        Content::of(&layers.iter().map(|layer| (layer.clone(), layer.clone())).collect::<Vec<_>>())
    }

    /// The response of a correct registry.
    pub fn answer(&self, request: &Request) -> Response {
        let path = request.path.split('?').next().unwrap();
        let last = path.rsplit('/').next().unwrap();
        if path.contains("/manifests/") {
            let digest = Digest::of(&self.manifest).to_string();
            return Response::of(200, self.manifest.clone()).with("Docker-Content-Digest", &digest);
        }
        match (self.blobs.get(last), request.range()) {
            (Some(blob), Some(from)) => Response::part(blob, from),
            (Some(blob), None) => Response::of(200, blob.clone()),
            (None, _) => Response::of(404, r#"{"errors":[{"message":"unknown"}]}"#),
        }
    }
}

pub fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
