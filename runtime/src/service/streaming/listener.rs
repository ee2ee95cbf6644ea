//! The connections of the streaming port. Every process of the machine can connect, and the clients are unknown until
//! they present a URL, so their number and their silence are bounded.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use stdx::sources::{SourceLimits, Sources};
use tokio::net::{TcpListener, TcpStream};

/// A session that was upgraded does not count any more. Most clients have the loopback address.
const CONNECTIONS: SourceLimits = SourceLimits { total: 1000, per_source: 1000 };
/// How long a client may take for the headers of a request, also if it sends nothing at all.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The bounds of a port.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    connections: SourceLimits,
    header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: CONNECTIONS, header_timeout: HEADER_TIMEOUT }
    }
}

/// Accepts connections until the process exits.
pub(super) async fn serve<R>(listener: TcpListener, limits: Limits, respond: R)
where
    R: Fn(Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + 'static,
{
    let sources = Sources::new(limits.connections);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(seat) = sources.admit(address.ip()) else { continue };
                let (respond, timeout) = (respond.clone(), limits.header_timeout);
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection(stream, timeout, respond) => {}
                        () = seat.evicted() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a streaming connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Returns when the client closes or its connection is upgraded.
async fn connection<R>(stream: TcpStream, header_timeout: Duration, respond: R)
where
    R: Fn(Request<Incoming>) -> Response<Full<Bytes>> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    let handler = service_fn(move |request| std::future::ready(Ok::<_, Infallible>(respond(request))));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "streaming connection failed");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, limits, |_| Response::new(Full::from("hello"))));
        address
    }

    /// Reads until the server closes the connection.
    async fn read_all(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        // A reset is a close as well.
        let _ = read.expect("the server closes the connection");
        String::from_utf8(bytes).expect("text")
    }

    #[tokio::test]
    async fn a_silent_client_is_disconnected() {
        let limits = Limits { header_timeout: Duration::from_millis(200), ..Limits::default() };
        let address = start(limits).await;
        for sent in ["", "GET / HTTP/1.1\r\nHost:"] {
            let mut silent = TcpStream::connect(address).await.expect("a connection");
            silent.write_all(sent.as_bytes()).await.expect("a write");
            assert_eq!(read_all(&mut silent).await, "", "{sent:?}");
        }
    }

    #[tokio::test]
    async fn connections_are_limited() {
        let connections = SourceLimits { total: 2, per_source: 2 };
        let address = start(Limits { connections, ..Limits::default() }).await;
        let connect = || async { TcpStream::connect(address).await.expect("a connection") };
        let (mut first, _second) = (connect().await, connect().await);
        assert_eq!(read_all(&mut connect().await).await, "", "a third one");
        first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.expect("a write");
        assert!(read_all(&mut first).await.ends_with("hello"));
        // The connection is given back soon after its end.
        let served = async {
            loop {
                let mut next = connect().await;
                let _ = next.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
                if read_all(&mut next).await.ends_with("hello") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, served).await.expect("a connection after one has ended");
    }
}
