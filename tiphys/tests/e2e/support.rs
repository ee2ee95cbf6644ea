//! A server process, a client for it, and what `./test` has installed.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_client::protocol::Http2Options;
use http_client::{Address, Identity, Stream, Trust};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_tiphys");

/// The root of the project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

/// A thing that `./test` installs; its absence is a failure.
pub fn tool(path: &str) -> PathBuf {
    let tools = std::env::var_os("TIPHYS_TEST_TOOLS").map_or_else(|| root().join("target/test-tools"), PathBuf::from);
    let path = tools.join(path);
    assert!(path.exists(), "{} is missing: run ./test, which installs it", path.display());
    path
}

/// A running server; it is killed at the end of the test.
pub struct Server {
    pub process: Child,
    pub dir: Arc<TempDir>,
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Server {
        Server::run(Arc::new(tempfile::tempdir().expect("a directory")), 0, flags)
    }

    /// Starts a server on an existing data directory.
    pub fn start_in(dir: Arc<TempDir>) -> Server {
        Server::run(dir, 0, &[])
    }

    /// Starts a server on the same port as the last one, for clients that reconnect.
    pub fn start_again(dir: Arc<TempDir>, port: u16, flags: &[&str]) -> Server {
        Server::run(dir, port, flags)
    }

    /// Runs `tiphys up` on a data directory; returns when it reports that it is ready.
    fn run(dir: Arc<TempDir>, port: u16, flags: &[&str]) -> Server {
        let data = dir.path().join("data");
        let mut process = Command::new(BINARY)
            .args(["up", "--disable-agent", "--port", &port.to_string(), "--data-dir"])
            .arg(&data)
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut port = None;
        // Another thread reads the pipe to its end: the server never blocks on its output.
        let mut lines = lines.map_while(Result::ok);
        for line in lines.by_ref() {
            if let Some((_, address)) = line.split_once(" at https://") {
                port = address.rsplit_once(':').and_then(|(_, port)| port.trim().parse().ok());
            }
            if line.starts_with("ctrl-c stops it") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, dir, port: port.expect("the server says where it is") }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/kubeconfig")
    }

    /// Waits for the administrator's kubeconfig, which is written last.
    pub fn wait_for_kubeconfig(&self) {
        stdx::wait::until("the server starts", Duration::from_secs(20), || self.kubeconfig().exists());
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }

    /// Waits until the process exits; returns its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let exit = || self.process.try_wait().expect("it is our child").ok_or("it runs");
        stdx::wait::until_ok("the server exits", Duration::from_secs(20), exit).code()
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("data/pki"), self.port).await
    }

    /// A client from another address of this machine.
    pub async fn client_at(&self, address: IpAddr) -> Client {
        let address = SocketAddr::new(address, self.port);
        Client::over(tls(&self.dir.path().join("data/pki"), address, b"http/1.1").await).await
    }

    pub async fn tls(&self, alpn: &[u8]) -> Stream {
        tls(&self.dir.path().join("data/pki"), SocketAddr::from(([127, 0, 0, 1], self.port)), alpn).await
    }

    pub async fn http2(&self) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let stream = self.tls(b"h2").await;
        // HTTP/2's own default, so that a stream which is not read stalls soon.
        let options = Http2Options { stream_window: Some(65_535), ..Http2Options::default() };
        http_client::handshake_http2(stream, options).await.expect("HTTP/2")
    }
}

async fn tls(pki: &Path, address: SocketAddr, alpn: &[u8]) -> Stream {
    tls_as(pki, Some("admin"), address, alpn).await
}

/// With the certificate of a name, or without any.
async fn tls_as(pki: &Path, user: Option<&str>, address: SocketAddr, alpn: &[u8]) -> Stream {
    let (config, to) = tls_config(pki, user, address, alpn);
    http_client::connect(&to, &config).await.expect("the port is open")
}

fn tls_config(
    pki: &Path,
    user: Option<&str>,
    address: SocketAddr,
    alpn: &[u8],
) -> (Arc<rustls::ClientConfig>, Address) {
    let read = |file: String| std::fs::read(pki.join(file)).expect("a file of the PKI");
    let trust = Trust::pem(&read("ca.crt".to_string())).expect("a CA bundle");
    let identity = user.map(|user| Identity::pem(&read(format!("{user}.crt")), &read(format!("{user}.key"))));
    let identity = identity.transpose().expect("a client certificate");
    let config = http_client::tls::config(&trust, identity.as_ref(), &[alpn]).expect("a configuration");
    let to = Address { name: "localhost".to_string(), ..Address::new(true, &address.ip().to_string(), address.port()) };
    (Arc::new(config), to)
}

/// One HTTP/1.1 connection with the administrator's certificate.
pub struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    /// The certificate that the server has shown.
    pub shown: Vec<u8>,
}

impl Client {
    pub async fn connect(pki: &Path, port: u16) -> Client {
        Client::over(tls(pki, SocketAddr::from(([127, 0, 0, 1], port)), b"http/1.1").await).await
    }

    /// A server on another host.
    pub async fn at(pki: &Path, address: SocketAddr) -> Client {
        Client::over(tls(pki, address, b"http/1.1").await).await
    }

    /// The same; None if it cannot be reached within some seconds.
    pub async fn try_at(pki: &Path, address: SocketAddr) -> Option<Client> {
        let (config, to) = tls_config(pki, Some("admin"), address, b"http/1.1");
        let connect = tokio::time::timeout(Duration::from_secs(5), http_client::connect(&to, &config));
        let stream = connect.await.ok()?.ok()?;
        let shown = stream.server_certificate()?.to_vec();
        Some(Client { sender: http_client::handshake_http1(stream).await.ok()?, shown })
    }

    /// The same without a client certificate.
    pub async fn without_certificate(pki: &Path, port: u16) -> Client {
        Client::over(tls_as(pki, None, SocketAddr::from(([127, 0, 0, 1], port)), b"http/1.1").await).await
    }

    async fn over(stream: Stream) -> Client {
        let shown = stream.server_certificate().expect("the server has a certificate").to_vec();
        let sender = http_client::handshake_http1(stream).await.expect("HTTP");
        Client { sender, shown }
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    /// The code and the whole body.
    pub async fn call(&mut self, method: &str, path: &str, body: &str) -> hyper::Result<(u16, Bytes)> {
        let response = self.send(request(method, path, body)).await?;
        let code = response.status().as_u16();
        Ok((code, response.into_body().collect().await?.to_bytes()))
    }
}

pub fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .expect("a request")
}

pub fn config_map(name: &str, value: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"{value}"}}}}"#)
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}
