//! Watches and logs over WebSocket. Watches are sent as one message per event, logs as they come; the client's frames
//! are read only to reply to pings and to detect its end. Frames and handshake are those of the crate `streaming`.

use api::base64;
use api::status::Status;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use streaming::accept_key;
use streaming::websocket::{CLOSE_NORMAL, Decoder, Event, Opcode, Role, close_payload, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::call::{Content, HttpResponse};
use crate::registry::verbs::watch::Watcher;
use crate::request::body::{Body, Source};
use crate::request::head::RequestHead;
use crate::request::negotiate::Media;

pub(crate) fn is_upgrade(head: &RequestHead, content: &Content) -> bool {
    let websocket = |value: &str| value.eq_ignore_ascii_case("websocket");
    content.upgrade.is_some() && head.header(header::UPGRADE).is_some_and(websocket)
}

/// Accepts the handshake, and sends the watch's events after the upgrade.
pub(crate) fn watch(head: &RequestHead, content: &mut Content, watcher: Watcher) -> Result<HttpResponse, Status> {
    let key = head.header("sec-websocket-key").ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = accept_key(key);
    let binary = watcher.media() == Media::Protobuf;
    let upgrade = content.upgrade.take().ok_or_else(|| Status::bad_request("the connection cannot be upgraded"))?;
    let framing = Framing::Events(if binary { Opcode::Binary } else { Opcode::Text });
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => send(TokioIo::new(upgraded), watcher, framing).await,
            Err(error) => tracing::debug!(%error, "connection upgrade failed"),
        }
    });
    Ok(switching(accept))
}

/// Accepts the handshake, and sends a stream of bytes in the client's subprotocol.
pub(crate) fn stream(head: &RequestHead, content: &mut Content, source: impl Source) -> Result<HttpResponse, Status> {
    let key = head.header("sec-websocket-key").ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = accept_key(key);
    let requested = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or("");
    let (protocol, framing) = match stream_protocol(requested) {
        Ok(chosen) => chosen,
        Err(why) => return Ok(crate::call::text(403, &why.to_string())),
    };
    let upgrade = content.upgrade.take().ok_or_else(|| Status::bad_request("the connection cannot be upgraded"))?;
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => send_initial_message(TokioIo::new(upgraded), source, framing).await,
            Err(error) => tracing::debug!(%error, "connection upgrade failed"),
        }
    });
    let mut response = switching(accept);
    if !protocol.is_empty() {
        response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

/// The subprotocols of a stream of bytes.
const STREAM_PROTOCOLS: [(&str, Framing); 3] =
    [("", Framing::Binary), ("base64.binary.k8s.io", Framing::Base64), ("binary.k8s.io", Framing::Binary)];

/// The client offers no subprotocol that the server supports.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested protocol(s) are not supported: [{requested}]; supports [{known}]")]
struct UnsupportedProtocols {
    requested: String,
    known: String,
}

/// The first of the client's subprotocols that is known.
fn stream_protocol(requested: &str) -> Result<(&'static str, Framing), UnsupportedProtocols> {
    let known = |name: &str| STREAM_PROTOCOLS.into_iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = requested.split(',').map(str::trim).collect();
    names.iter().find_map(|name| known(name)).ok_or_else(|| {
        let known: Vec<&str> = STREAM_PROTOCOLS.iter().map(|(name, _)| *name).collect();
        UnsupportedProtocols { requested: names.join(" "), known: known.join(" ") }
    })
}

/// The conversion of bytes to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// A chunk contains whole events: one message each, with this opcode.
    Events(Opcode),
    Binary,
    Base64,
}

/// The most bytes of a stream in one message.
const MESSAGE_BYTES: usize = 2048;

impl Framing {
    fn messages(self, chunk: &Bytes) -> Bytes {
        let mut out = BytesMut::with_capacity(chunk.len() + 64);
        match self {
            Framing::Events(opcode) => return messages(chunk, opcode),
            Framing::Binary => chunk.chunks(MESSAGE_BYTES).for_each(|part| put(Opcode::Binary, part, &mut out)),
            Framing::Base64 => {
                chunk
                    .chunks(MESSAGE_BYTES)
                    .for_each(|part| put(Opcode::Text, base64::encode(part).as_bytes(), &mut out));
            }
        }
        out.freeze()
    }
}

/// Begins with an empty message, with which the client detects that the connection works.
async fn send_initial_message(mut io: TokioIo<Upgraded>, source: impl Source, framing: Framing) {
    let opcode = if framing == Framing::Base64 { Opcode::Text } else { Opcode::Binary };
    if io.write_all(&frame(opcode, &[])).await.is_ok() && io.flush().await.is_ok() {
        send(io, source, framing).await;
    }
}

fn switching(accept: String) -> HttpResponse {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert("sec-websocket-accept", accept);
    }
    response
}

async fn send(mut io: TokioIo<Upgraded>, mut source: impl Source, framing: Framing) {
    let (mut decoder, mut incoming) = (Decoder::new(Role::Server), BytesMut::new());
    loop {
        let out = tokio::select! {
            biased;
            read = io.read_buf(&mut incoming) => match replies(&mut decoder, &mut incoming) {
                Some(replies) if read.is_ok_and(|read| read > 0) => replies,
                _ => break,
            },
            chunk = source.next() => match chunk {
                Some(chunk) => framing.messages(&chunk),
                None => break,
            },
        };
        if io.write_all(&out).await.is_err() || io.flush().await.is_err() {
            return;
        }
    }
    let _ = io.write_all(&frame(Opcode::Close, &close_payload(CLOSE_NORMAL, ""))).await;
    let _ = io.shutdown().await;
}

/// The replies to the client's pings; None if it closes the connection, or sends invalid frames.
fn replies(decoder: &mut Decoder, incoming: &mut BytesMut) -> Option<Bytes> {
    let mut out = BytesMut::new();
    loop {
        match decoder.decode(incoming) {
            Ok(None) => return Some(out.freeze()),
            Ok(Some(Event::Ping(payload))) => put(Opcode::Pong, &payload, &mut out),
            Ok(Some(Event::Data { .. } | Event::Pong(_))) => {}
            Ok(Some(Event::Close { .. })) | Err(_) => return None,
        }
    }
}

/// A chunk of a watch contains whole events: one message each.
fn messages(chunk: &Bytes, opcode: Opcode) -> Bytes {
    let mut out = BytesMut::with_capacity(chunk.len() + 64);
    if opcode == Opcode::Text {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            put(opcode, line, &mut out);
        }
        return out.freeze();
    }
    let mut rest = &chunk[..];
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = (u32::from_be_bytes(*length) as usize).min(tail.len());
        put(opcode, &tail[..length], &mut out);
        rest = &tail[length..];
    }
    out.freeze()
}

/// One unmasked frame, complete in itself.
fn put(opcode: Opcode, payload: &[u8], out: &mut BytesMut) {
    encode(opcode, &[payload], None, out);
}

fn frame(opcode: Opcode, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 10);
    put(opcode, payload, &mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn distinguishes_control_frames() {
        let replies = |bytes: &[u8]| replies(&mut Decoder::new(Role::Server), &mut BytesMut::from(bytes));
        assert_eq!(replies(&[0x88, 0x80, 0, 0, 0, 0]), None);
        let ping = [0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
        assert_eq!(replies(&ping).as_deref(), Some(&b"\x8a\x02hi"[..]));
        assert_eq!(replies(&ping[..5]).as_deref(), Some(&b""[..]), "the rest has not arrived");
        assert_eq!(replies(&[0x81, 0x80, 0, 0, 0, 0]).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn selects_the_first_supported_subprotocol() {
        assert_eq!(stream_protocol(""), Ok(("", Framing::Binary)));
        assert_eq!(stream_protocol("x, base64.binary.k8s.io"), Ok(("base64.binary.k8s.io", Framing::Base64)));
        let why = "requested protocol(s) are not supported: [x y]; supports [ base64.binary.k8s.io binary.k8s.io]";
        assert_eq!(stream_protocol("x,y").map_err(|error| error.to_string()), Err(why.to_string()));
        assert_eq!(&Framing::Binary.messages(&Bytes::from("ab"))[..], b"\x82\x02ab");
        assert_eq!(&Framing::Base64.messages(&Bytes::from("ab"))[..], b"\x81\x04YWI=");
        assert_eq!(Framing::Binary.messages(&Bytes::from(vec![0; 3000])).len(), 2048 + 4 + 952 + 4);
    }

    #[test]
    fn each_event_is_a_message() {
        let sent = messages(&Bytes::from("{\"a\":1}\n{}\n"), Opcode::Text);
        assert_eq!(&sent[..], b"\x81\x08{\"a\":1}\n\x81\x03{}\n");
        assert_eq!(frame(Opcode::Binary, &[0; 300])[..4], [0x82, 126, 1, 44]);
        let two = Bytes::from(vec![0, 0, 0, 1, 7, 0, 0, 0, 2, 8, 9]);
        assert_eq!(&messages(&two, Opcode::Binary)[..], [0x82, 1, 7, 0x82, 2, 8, 9]);
    }
}
