//! A small HTTP/1.1 server for requests without bodies.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use stdx::sources::{SourceLimits, Sources};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Load balancers and probes have few connections.
const CONNECTIONS: SourceLimits = SourceLimits { total: 256, per_source: 32 };
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// After an accept fails, for instance because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn text(code: u16, body: impl Into<String>) -> Reply {
        Reply { code, content_type: "text/plain; charset=utf-8", headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn json(code: u16, body: String) -> Reply {
        let headers = vec![("x-content-type-options", "nosniff".to_string())];
        Reply { code, content_type: "application/json", headers, body }
    }

    pub(crate) fn not_found() -> Reply {
        Reply::text(404, "404 page not found\n")
    }
}

/// Responds to the path of a request.
pub(crate) type Handler = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// A server, which stops when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Binds an address, in the namespace of the calling thread. `[::]` serves IPv4 too unless each family has a server.
    pub(crate) fn bind(address: SocketAddr, one_family: bool, handler: Handler) -> io::Result<Server> {
        let listener = listen(address, one_family)?;
        let address = listener.local_addr()?;
        Ok(Server { address, task: tokio::spawn(accept(listener, handler)) })
    }
}

fn listen(address: SocketAddr, one_family: bool) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, one_family)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(std::net::TcpListener::from(socket))
}

async fn accept(listener: TcpListener, handler: Handler) {
    let sources = Sources::new(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(seat) = sources.admit(address.ip()) else { continue };
                let handler = handler.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = serve(stream, handler) => {}
                        () = seat.evicted() => {}
                    }
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    let respond = |request: Request<Incoming>| {
        let reply = match *request.method() {
            http::Method::GET | http::Method::HEAD => handler(request.uri().path()),
            _ => Reply::text(405, "Method Not Allowed\n"),
        };
        async move { Ok::<_, Infallible>(response(reply)) }
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // A client that ends early is no failure.
    let _ = builder.serve_connection(TokioIo::new(stream), hyper::service::service_fn(respond)).await;
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = http::StatusCode::from_u16(reply.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
