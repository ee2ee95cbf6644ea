//! The HTTP upgrade: protocol negotiation on the server and on the client.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use thiserror::Error;

pub(crate) const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";
const WEBSOCKET_PROTOCOL: &str = "sec-websocket-protocol";
const WEBSOCKET_KEY: &str = "sec-websocket-key";
const WEBSOCKET_VERSION: &str = "sec-websocket-version";
const WEBSOCKET_ACCEPT: &str = "sec-websocket-accept";
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a request cannot be upgraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeRejection {
    pub status: StatusCode,
    pub message: String,
    /// The supported protocols, for a client that supports none of them.
    pub accepted: &'static [&'static str],
}

impl UpgradeRejection {
    /// A 400 with a message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), accepted: &[] }
    }

    /// The response to the client.
    pub fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(format!("{}\n", self.message))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        for protocol in self.accepted {
            headers.append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(protocol));
        }
        response
    }
}

/// An upgrade in progress: the response to send, and the connection that follows it.
pub(crate) struct PendingUpgrade {
    /// The negotiated protocol without its transport; empty if the client named none.
    pub protocol: &'static str,
    pub response: Response<Full<Bytes>>,
    pub connection: OnUpgrade,
}

/// Whether a request is an upgrade to WebSocket; other upgrades are assumed to be SPDY.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    has_token(headers, UPGRADE.as_str(), "websocket") && has_token(headers, CONNECTION.as_str(), "upgrade")
}

/// The subprotocols of a WebSocket request, in order of preference.
pub(crate) fn websocket_protocols(headers: &HeaderMap) -> Vec<String> {
    tokens(headers, WEBSOCKET_PROTOCOL)
}

/// Negotiates a WebSocket subprotocol: the client's first that is supported. A client that names none gets none.
pub(crate) fn websocket<B>(
    request: &mut Request<B>,
    accepted: &'static [&'static str],
) -> Result<PendingUpgrade, UpgradeRejection> {
    let headers = request.headers();
    if headers.get(WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes() != b"13") {
        return Err(UpgradeRejection::bad_request("missing or bad WebSocket Version"));
    }
    let key = headers.get(WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16));
    let key = key.ok_or_else(|| UpgradeRejection::bad_request("missing or bad Sec-WebSocket-Key"))?;
    let requested = websocket_protocols(headers);
    let protocol = if requested.is_empty() { Some("") } else { choose(&requested, accepted) };
    let protocol = protocol.ok_or_else(|| UpgradeRejection {
        status: StatusCode::FORBIDDEN,
        message: format!(
            "requested protocol(s) are not supported: [{}]; supports [{}]",
            requested.join(" "),
            accepted.join(" ")
        ),
        accepted: &[],
    })?;
    let accept = value(&accept_key(key));
    let mut response = switching("websocket");
    response.headers_mut().insert(WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        response.headers_mut().insert(WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(PendingUpgrade { protocol, response, connection: hyper::upgrade::on(request) })
}

/// Negotiates a protocol over SPDY, which the client must name.
pub(crate) fn spdy<B>(
    request: &mut Request<B>,
    accepted: &'static [&'static str],
) -> Result<PendingUpgrade, UpgradeRejection> {
    let headers = request.headers();
    let requested = tokens(headers, STREAM_PROTOCOL);
    if requested.is_empty() {
        return Err(UpgradeRejection::bad_request("unable to upgrade: X-Stream-Protocol-Version is required"));
    }
    let protocol = choose(&requested, accepted).ok_or_else(|| UpgradeRejection {
        status: StatusCode::FORBIDDEN,
        message: format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            requested.join(" "),
            accepted.join(" ")
        ),
        accepted,
    })?;
    if !has_token(headers, CONNECTION.as_str(), "upgrade") || !has_token(headers, UPGRADE.as_str(), SPDY) {
        return Err(UpgradeRejection::bad_request("unable to upgrade: missing upgrade headers in request"));
    }
    let mut response = switching(SPDY);
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok(PendingUpgrade { protocol, response, connection: hyper::upgrade::on(request) })
}

fn switching(upgrade: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(upgrade));
    response
}

fn tokens(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let tokens = values.flat_map(|value| value.split(',')).map(|token| token.trim().to_string());
    tokens.filter(|token| !token.is_empty()).collect()
}

pub(crate) fn has_token(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    tokens(headers, name).iter().any(|token| token.eq_ignore_ascii_case(wanted))
}

fn choose(requested: &[String], accepted: &'static [&'static str]) -> Option<&'static str> {
    requested.iter().find_map(|protocol| accepted.iter().find(|other| *other == protocol)).copied()
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
pub fn accept_key(key: &str) -> String {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()).as_ref())
}

/// The value is base64 or a protocol name, which are valid header values.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The transport of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    WebSocket,
    Spdy,
}

/// Adds upgrade headers for one of the protocols, in order of preference.
pub fn request_upgrade<B>(request: &mut Request<B>, transport: Transport, protocols: &[&str]) {
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match transport {
        Transport::WebSocket => {
            let key = STANDARD.encode(crate::websocket::random::<16>());
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            headers.insert(WEBSOCKET_KEY, value(&key));
            headers.insert(WEBSOCKET_PROTOCOL, value(&protocols.join(", ")));
        }
        Transport::Spdy => {
            headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
            protocols.iter().for_each(|protocol| {
                headers.append(STREAM_PROTOCOL, value(protocol));
            });
        }
    }
}

/// Why a connection was not upgraded.
#[derive(Debug, PartialEq, Error)]
pub enum UpgradeError {
    /// The server responded with another status.
    #[error("unable to upgrade connection: {0}")]
    Status(StatusCode),
    /// The response does not name the protocol of the upgrade.
    #[error("unable to upgrade connection: missing upgrade headers in response")]
    NoUpgrade,
    /// The response does not prove that the server supports WebSocket.
    #[error("unable to upgrade connection: invalid Sec-WebSocket-Accept in response")]
    Accept,
    /// The server chose a protocol that was not requested.
    #[error("unable to upgrade connection: the server chose protocol {0:?}")]
    Protocol(String),
}

/// The protocol that the server selected; an error if it did not upgrade correctly.
pub fn agreed<B>(requested: &HeaderMap, response: &Response<B>, transport: Transport) -> Result<String, UpgradeError> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(UpgradeError::Status(response.status()));
    }
    let (upgrade, header) = match transport {
        Transport::WebSocket => ("websocket", WEBSOCKET_PROTOCOL),
        Transport::Spdy => (SPDY, STREAM_PROTOCOL),
    };
    if !has_token(response.headers(), UPGRADE.as_str(), upgrade) {
        return Err(UpgradeError::NoUpgrade);
    }
    if transport == Transport::WebSocket {
        let key = requested.get(WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
        let accept = response.headers().get(WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if accept != Some(accept_key(key).as_bytes()) {
            return Err(UpgradeError::Accept);
        }
    }
    let protocol = tokens(response.headers(), header).into_iter().next().unwrap_or_default();
    if tokens(requested, header).contains(&protocol) {
        return Ok(protocol);
    }
    Err(UpgradeError::Protocol(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTED: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        for (name, text) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(text).unwrap());
        }
        request
    }

    #[test]
    fn computes_sec_websocket_accept() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn spdy_errors_match_upstream() {
        let upgrade = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")];
        let check = |headers: &[(&str, &str)], status: u16, message: &str| {
            let refusal = spdy(&mut request(headers), ACCEPTED).err().unwrap();
            assert_eq!((refusal.status.as_u16(), refusal.message.as_str()), (status, message));
        };
        check(&upgrade, 400, "unable to upgrade: X-Stream-Protocol-Version is required");
        check(
            &[upgrade[0], upgrade[1], ("X-Stream-Protocol-Version", "v9, v8"), ("X-Stream-Protocol-Version", "v7")],
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [v9 v8 v7], server accepts \
             [v5.channel.k8s.io v4.channel.k8s.io]",
        );
        check(
            &[("X-Stream-Protocol-Version", "v4.channel.k8s.io")],
            400,
            "unable to upgrade: missing upgrade headers in request",
        );
        let refused = spdy(&mut request(&[("X-Stream-Protocol-Version", "v9")]), ACCEPTED).err().unwrap().response();
        let accepted: Vec<_> = refused.headers().get_all(ACCEPTED_PROTOCOLS).iter().collect();
        assert_eq!(accepted, ACCEPTED);
    }

    #[test]
    fn negotiates_the_clients_first_choice() {
        for transport in [Transport::WebSocket, Transport::Spdy] {
            let mut request = request(&[]);
            request_upgrade(&mut request, transport, &["v9", "v4.channel.k8s.io", "v5.channel.k8s.io"]);
            let requested = request.headers().clone();
            let upgrading = match transport {
                Transport::WebSocket => websocket(&mut request, ACCEPTED),
                Transport::Spdy => spdy(&mut request, ACCEPTED),
            };
            let upgrading = upgrading.ok().unwrap();
            assert_eq!(upgrading.protocol, "v4.channel.k8s.io");
            assert_eq!(agreed(&requested, &upgrading.response, transport), Ok("v4.channel.k8s.io".to_string()));
        }
    }

    #[test]
    fn websocket_requires_version_and_key() {
        let check = |headers: &[(&str, &str)], status: u16| {
            assert_eq!(
                websocket(&mut request(headers), ACCEPTED).err().map(|refusal| refusal.status.as_u16()),
                Some(status)
            );
        };
        let version = ("Sec-WebSocket-Version", "13");
        let key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
        check(&[key], 400);
        check(&[version], 400);
        check(&[version, ("Sec-WebSocket-Key", "short")], 400);
        check(&[version, key, ("Sec-WebSocket-Protocol", "v9")], 403);
    }
}
