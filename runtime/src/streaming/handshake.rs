//! The request that opens a session: which session, and in which of the protocols it will be spoken.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::{Session, Waiting, sessions, spdy, take, websocket};
use crate::service::Service;

type Body = Full<bytes::Bytes>;

/// The GUID of RFC 6455.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How a session's channels are written on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: &'static str,
    /// Whether a client can say that it will send no more on a channel.
    pub closes: bool,
}

/// Best first.
const COMMANDS: [Protocol; 2] =
    [Protocol { name: "v5.channel.k8s.io", closes: true }, Protocol { name: "v4.channel.k8s.io", closes: false }];

pub fn answer(request: Request<Incoming>, service: &Service, waiting: &Waiting) -> Response<Body> {
    let Some(session) = take(waiting, request.uri().path()) else {
        return refuse(StatusCode::NOT_FOUND, "no session waits at this address");
    };
    let upgrade = request.headers().get(header::UPGRADE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match upgrade.to_ascii_lowercase().as_str() {
        "websocket" => open_websocket(request, session, service),
        "spdy/3.1" => open_spdy(request, session, service),
        "" => refuse(StatusCode::BAD_REQUEST, "the connection must be upgraded to WebSocket or SPDY/3.1"),
        other => refuse(StatusCode::FORBIDDEN, &format!("an upgrade to {other} is not supported")),
    }
}

fn refuse(status: StatusCode, reason: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{reason}\n")));
    *response.status_mut() = status;
    response
}

fn open_websocket(request: Request<Incoming>, session: Session, service: &Service) -> Response<Body> {
    if request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket is opened by GET");
    }
    let Some(key) = request.headers().get("sec-websocket-key").and_then(|k| k.to_str().ok()) else {
        return refuse(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing");
    };
    let Some(protocol) = choose(request.headers()) else {
        return refuse(StatusCode::BAD_REQUEST, "no WebSocket protocol that is offered is known");
    };
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let accept = base64::engine::general_purpose::STANDARD.encode(hash.as_ref());
    let service = service.clone();
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                let (channels, wire) = websocket::start(TokioIo::new(upgraded), protocol, &session);
                sessions::run(service, session, channels).await;
                let _ = wire.await;
            }
            Err(error) => tracing::debug!(%error, "a streaming connection was not upgraded"),
        }
    });
    switching(&accept, protocol)
}

/// What a SPDY client is told that its streams mean.
fn spdy_protocol(headers: &HeaderMap, session: &Session) -> Option<&'static str> {
    let known = match session {
        Session::PortForward(_) => "portforward.k8s.io",
        _ => "v4.channel.k8s.io",
    };
    let offered = headers.get_all("x-stream-protocol-version").iter().filter_map(|v| v.to_str().ok());
    offered.flat_map(|v| v.split(',')).any(|v| v.trim() == known).then_some(known)
}

fn open_spdy(request: Request<Incoming>, session: Session, service: &Service) -> Response<Body> {
    if request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "SPDY is opened by POST");
    }
    let Some(protocol) = spdy_protocol(request.headers(), &session) else {
        return refuse(StatusCode::FORBIDDEN, "no X-Stream-Protocol-Version that is offered is known");
    };
    let service = service.clone();
    tokio::spawn(async move {
        let io = match hyper::upgrade::on(request).await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::debug!(%error, "a streaming connection was not upgraded"),
        };
        if let Session::PortForward(request) = session {
            return spdy::forward(io, service, request.pod_sandbox_id).await;
        }
        match spdy::start(io, &session).await {
            Ok((channels, wire)) => {
                sessions::run(service, session, channels).await;
                let _ = wire.await;
            }
            Err(error) => tracing::debug!(%error, "a client did not open its streams"),
        }
    });
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static(protocol));
    response
}

/// The first of ours that the client offers.
fn choose(headers: &HeaderMap) -> Option<Protocol> {
    let offered: Vec<_> = headers
        .get_all("sec-websocket-protocol")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .collect();
    COMMANDS.iter().find(|p| offered.contains(&p.name)).copied()
}

fn switching(accept: &str, protocol: Protocol) -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol.name));
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert("sec-websocket-accept", accept);
    }
    response
}
