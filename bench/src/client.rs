//! The client: HTTP/1.1 by hand, because it has to cost less than what it measures; HTTP/2 by hyper.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use http_client::protocol::Http2Options;
use http_client::{Trust, tls};
use hyper::client::conn::http2::SendRequest;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Result;

/// A client's certificate and key, in PEM.
pub(crate) struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// How a client of this benchmark greets a server.
#[derive(Clone)]
pub(crate) struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Tls {
    pub(crate) fn anonymous() -> Result<Tls> {
        Tls::new(None)
    }

    pub(crate) fn with_client(identity: &Identity) -> Result<Tls> {
        Tls::new(Some(identity))
    }

    /// Whom to trust, and who we are.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.http1.config().clone()
    }

    fn new(identity: Option<&Identity>) -> Result<Tls> {
        let connector =
            |protocol: &[u8]| -> Result<TlsConnector> { Ok(TlsConnector::from(Arc::new(config(identity, protocol)?))) };
        Ok(Tls { http1: connector(tls::HTTP1)?, http2: connector(tls::HTTP2)? })
    }
}

/// The servers are children of this process: their certificates are not verified.
fn config(identity: Option<&Identity>, protocol: &[u8]) -> Result<ClientConfig> {
    let identity = identity.map(|identity| http_client::Identity::pem(&identity.certificate, &identity.key));
    Ok(tls::config(&Trust::InsecureSkipVerify, identity.transpose()?.as_ref(), &[protocol])?)
}

async fn handshake(address: SocketAddr, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?)
}

/// A response.
pub(crate) struct Response {
    pub code: u16,
    pub body_bytes: usize,
}

pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Box<[u8]>,
}

/// The heads of responses are far smaller; bodies are read in pieces of this size.
const BUFFER_BYTES: usize = 64 << 10;

impl Connection {
    pub(crate) async fn open(address: SocketAddr, tls: &Tls) -> Result<Connection> {
        let stream = handshake(address, &tls.http1).await?;
        Ok(Connection { stream, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Sends a whole request and discards the body of the response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Response> {
        let (code, body, here) = self.begin(request).await?;
        let mut left = body - here.len();
        while left > 0 {
            let read = self.stream.read(&mut self.buffer).await?;
            left = left.checked_sub(nonzero(read)?).ok_or("the answer is longer than it said")?;
        }
        Ok(Response { code, body_bytes: body })
    }

    /// Sends a whole request and returns the body of the response.
    pub(crate) async fn fetch(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let (code, body, here) = self.begin(request).await?;
        let mut all = self.buffer[here].to_vec();
        let have = all.len();
        all.resize(body, 0);
        self.stream.read_exact(&mut all[have..]).await?;
        if code < 300 { Ok(all) } else { Err(format!("{code}: {}", String::from_utf8_lossy(&all)).into()) }
    }

    /// The status, the length of the body, and where in the buffer its beginning is.
    async fn begin(&mut self, request: &[u8]) -> Result<(u16, usize, std::ops::Range<usize>)> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let mut have = 0;
        loop {
            have += nonzero(self.stream.read(&mut self.buffer[have..]).await?)?;
            if let Some((code, body, start)) = head(&self.buffer[..have])? {
                return Ok((code, body, start..have));
            }
        }
    }

    /// Opens a stream: reads the head of the response, and returns the rest to the caller.
    pub(crate) async fn stream(mut self, request: &[u8]) -> Result<TlsStream<TcpStream>> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        if head.get(9..12) != Some(b"200") {
            return Err(String::from_utf8_lossy(&head).into());
        }
        Ok(self.stream)
    }
}

fn nonzero(read: usize) -> Result<usize> {
    if read == 0 { Err("the server closed the connection".into()) } else { Ok(read) }
}

fn content_length(head: &str) -> Option<usize> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    head.lines().skip(1).find_map(value)
}

/// A connection for a caller that waits for each response: without a runtime, whose threads would have to be woken
/// between the socket and the caller.
pub(crate) struct BlockingConnection {
    stream: rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>,
    buffer: Box<[u8]>,
}

impl BlockingConnection {
    pub(crate) fn open(address: SocketAddr, tls: &Tls) -> Result<BlockingConnection> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let connection = rustls::ClientConnection::new(tls.http1.config().clone(), ServerName::try_from("localhost")?)?;
        let stream = rustls::StreamOwned::new(connection, stream);
        Ok(BlockingConnection { stream, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Sends a whole request, and returns the status after the whole response was read.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request)?;
        let mut have = 0;
        loop {
            have += nonzero(self.stream.read(&mut self.buffer[have..])?)?;
            if let Some((code, body, start)) = head(&self.buffer[..have])?
                && start + body <= have
            {
                return Ok(code);
            }
        }
    }
}

/// The status of a response, the length of its body and its offset; None if the head is incomplete.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    let code = head.get(9..12).and_then(|code| code.parse().ok()).ok_or("no status line")?;
    Ok(Some((code, content_length(head).ok_or("no content-length")?, end + 4)))
}

/// An HTTP/2 connection for requests with a body.
pub(crate) async fn open_http2(address: SocketAddr, tls: &Tls) -> Result<SendRequest<Full<Bytes>>> {
    let stream = handshake(address, &tls.http2).await?;
    Ok(http_client::handshake_http2(stream, Http2Options::default()).await?)
}

/// An HTTP/2 connection.
pub(crate) struct Http2 {
    sender: SendRequest<Empty<Bytes>>,
}

impl Http2 {
    /// With windows as Go's client has them.
    pub(crate) async fn open(address: SocketAddr, tls: &Tls) -> Result<Http2> {
        let stream = handshake(address, &tls.http2).await?;
        let windows = Http2Options { stream_window: Some(4 << 20), connection_window: Some(1 << 30), keep_alive: None };
        Ok(Http2 { sender: http_client::handshake_http2(stream, windows).await? })
    }

    /// The length of the body behind a path.
    pub(crate) async fn get(&mut self, path: &str) -> Result<usize> {
        let request = Request::get(format!("https://localhost{path}")).body(Empty::new())?;
        let mut answer = self.sender.send_request(request).await?;
        let mut bytes = 0;
        while let Some(frame) = answer.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn finds_content_length_in_any_case() {
        assert_eq!(content_length("HTTP/1.1 200 OK\r\nContent-Length: 12\r\na: b"), Some(12));
        assert_eq!(content_length("HTTP/1.1 200 OK\r\na: b\r\ncontent-length:7"), Some(7));
        assert_eq!(content_length("HTTP/1.1 200 OK\r\na: b"), None);
    }
}
