//! The reverse proxy: one connection per request. Hop-by-hop headers are dropped, and upgrades are passed through.

use std::net::IpAddr;

use api::status::Status;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use http_client::{ConnectError, Stream};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::links::{Encoding, Location, Page};
use super::target::Target;
use crate::call::{Call, HttpResponse};
use crate::outbound::tunnels::connect_directly;
use crate::request::body::{Body, Source, StreamBody};
use crate::request::request_body::RequestBody;

/// Headers that apply to one connection and not to the message.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers with which a server allows other origins.
const CORS: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Sends the call to the target with this path; `prefix` is the part of the client's path that denotes the target.
pub(crate) async fn forward(
    call: &mut Call,
    target: &Target,
    prefix: &str,
    path: &str,
) -> Result<HttpResponse, Status> {
    let upgrade = call.content.upgrade.take();
    let request = outbound(call, target, path, upgrade.is_some())?;
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("").to_string();
    let response = send(target, request)
        .await
        .map_err(|error| Status::service_unavailable(format!("error trying to reach service: {error}")))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = upgrade
    {
        return Ok(switch(response, client));
    }
    let place = Location { prefix: prefix.to_string(), hosts: [target.authority(), host] };
    Ok(inbound(response, place, call.head.method == http::Method::HEAD))
}

fn outbound(call: &mut Call, target: &Target, path: &str, upgrade: bool) -> Result<Request<RequestBody>, Status> {
    let body = call.content.body.take().ok_or_else(|| Status::internal("the body has been read already"))?;
    let path = if path.is_empty() { "/" } else { path };
    let uri = if call.head.raw_query.is_empty() { path.to_string() } else { format!("{path}?{}", call.head.raw_query) };
    let mut request = Request::new(body);
    *request.method_mut() = call.head.method.clone();
    *request.uri_mut() = uri.parse::<Uri>().map_err(|error| Status::bad_request(error.to_string()))?;
    let protocol = call.head.headers.get(header::UPGRADE).cloned();
    let mut headers = call.head.headers.clone();
    drop_hop_headers(&mut headers);
    if let Some(protocol) = protocol.filter(|_| upgrade) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    if !headers.contains_key(header::HOST) {
        headers.insert(header::HOST, value(&target.authority())?);
    }
    headers.insert("x-forwarded-uri", value(&call.head.path)?);
    headers.insert("x-forwarded-for", value(&forwarded_for(&headers, call.peer.address.ip()))?);
    *request.headers_mut() = headers;
    Ok(request)
}

fn value(text: &str) -> Result<HeaderValue, Status> {
    HeaderValue::from_str(text).map_err(|error| Status::bad_request(error.to_string()))
}

/// Appends the client to the addresses in the header.
pub(crate) fn forwarded_for(headers: &HeaderMap, client: IpAddr) -> String {
    let earlier = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let client = client.to_canonical().to_string();
    earlier.chain([client.as_str()]).collect::<Vec<_>>().join(", ")
}

pub(crate) fn drop_hop_headers(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}

/// Why a target was not reached, with the messages of Go's dialer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("dial tcp {target}: i/o timeout")]
    Timeout { target: String },
    #[error("dial tcp {target}: connect: {}", reason(source))]
    Dial { target: String, source: std::io::Error },
    #[error(transparent)]
    Tls(ConnectError),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// Sends a request to the target over a new connection.
pub(crate) async fn send<B>(target: &Target, request: Request<B>) -> Result<Response<Incoming>, SendError>
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    Ok(http_client::send_once(open(target).await?, request).await?)
}

/// Opens a connection to the target.
pub(crate) async fn open(target: &Target) -> Result<Stream, SendError> {
    let stream = tokio::time::timeout(target.timeout, connect(target));
    stream.await.map_err(|_| SendError::Timeout { target: target.authority() })?
}

async fn connect(target: &Target) -> Result<Stream, SendError> {
    let failed = |error: ConnectError| match error {
        ConnectError::Lookup { source, .. } | ConnectError::Dial { source, .. } => {
            SendError::Dial { target: target.authority(), source }
        }
        error => SendError::Tls(error),
    };
    let address = target.address();
    let stream = match (&target.dialer, &target.node) {
        (Some(dialer), Some(node)) => dialer.connect_node(node, &address, target.tls.as_ref()).await,
        (Some(dialer), None) => dialer.connect(&address, target.tls.as_ref()).await,
        (None, _) => connect_directly(&address, target.tls.as_ref()).await,
    };
    stream.map_err(failed)
}

/// The error text that clients recognise.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_string(),
        std::io::ErrorKind::HostUnreachable => "no route to host".to_string(),
        _ => error.to_string(),
    }
}

/// The target's response for the client: redirects and links inside the target lead through the proxy.
fn inbound(response: Response<Incoming>, place: Location, is_head: bool) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    drop_hop_headers(&mut parts.headers);
    // This server decides about the access of other origins.
    CORS.iter().for_each(|name| drop(parts.headers.remove(*name)));
    if let Some(location) = parts.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) {
        if let Ok(location) = HeaderValue::from_str(&place.rewrite(location)) {
            parts.headers.insert(header::LOCATION, location);
        }
        return streamed(Response::from_parts(parts, body));
    }
    match page_encoding(&parts.headers).filter(|_| !is_head) {
        Some(encoding) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove(header::CONTENT_ENCODING);
            parts.version = http::Version::default();
            Response::from_parts(parts, Body::Stream(StreamBody::new(Page::new(Remote { body }, encoding, place))))
        }
        None => streamed(Response::from_parts(parts, body)),
    }
}

/// The encoding of an HTML page; None for other content, and for an unknown encoding.
fn page_encoding(headers: &HeaderMap) -> Option<Encoding> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = text(header::CONTENT_TYPE).split(';').next().unwrap_or("").trim();
    if media == "text/html" { Encoding::named(text(header::CONTENT_ENCODING)) } else { None }
}

/// A response whose body is streamed.
pub(crate) fn streamed<B: RemoteBody>(response: Response<B>) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    // The HTTP version is that of the client's connection.
    parts.version = http::Version::default();
    Response::from_parts(parts, Body::Stream(StreamBody::new(Remote { body })))
}

/// The body of a target's response.
pub(crate) trait RemoteBody:
    http_body::Body<Data = Bytes, Error = hyper::Error> + Unpin + Send + 'static
{
}
impl<B: http_body::Body<Data = Bytes, Error = hyper::Error> + Unpin + Send + 'static> RemoteBody for B {}

/// A body from the target.
struct Remote<B> {
    body: B,
}

impl<B: RemoteBody> Source for Remote<B> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(data);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "proxied response ended early");
                    return None;
                }
            }
        }
    }
}

/// Both sides have switched to another protocol: from now on bytes are passed through.
pub(crate) fn switch(mut response: Response<Incoming>, client: hyper::upgrade::OnUpgrade) -> HttpResponse {
    let target = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (Ok(client), Ok(target)) = (client.await, target.await) else { return };
        let (mut client, mut target) = (TokioIo::new(client), TokioIo::new(target));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut target).await {
            tracing::debug!(%error, "upgraded connection ended");
        }
    });
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::empty())
}

#[cfg(test)]
mod tests;
