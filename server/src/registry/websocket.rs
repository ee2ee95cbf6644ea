//! WebSocket as far as the server needs it: the handshake, and frames from the server to the client. Watches are sent
//! as one message per event, logs as they come; the client's frames are read only to detect its end.

use api::base64;
use api::status::Status;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::call::{Answer, Content};
use crate::registry::verbs::watch::Watcher;
use crate::request::body::{Body, Source};
use crate::request::head::RequestHead;
use crate::request::negotiate::Media;

/// The GUID of RFC 6455.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

pub(crate) fn is_upgrade(head: &RequestHead, content: &Content) -> bool {
    let websocket = |value: &str| value.eq_ignore_ascii_case("websocket");
    content.upgrade.is_some() && head.header(header::UPGRADE).is_some_and(websocket)
}

/// Accepts the handshake, and sends the watch's events after the upgrade.
pub(crate) fn watch(head: &RequestHead, content: &mut Content, watcher: Watcher) -> Result<Answer, Status> {
    let key = head.header("sec-websocket-key").ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = accept_key(key);
    let binary = watcher.media() == Media::Protobuf;
    let upgrade = content.upgrade.take().ok_or_else(|| Status::bad_request("the connection cannot be upgraded"))?;
    let framing = Framing::Events(if binary { BINARY } else { TEXT });
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => send(TokioIo::new(upgraded), watcher, framing).await,
            Err(error) => tracing::debug!(%error, "connection upgrade failed"),
        }
    });
    Ok(switching(accept))
}

/// Accepts the handshake, and sends a stream of bytes in the client's subprotocol.
pub(crate) fn stream(head: &RequestHead, content: &mut Content, source: impl Source) -> Result<Answer, Status> {
    let key = head.header("sec-websocket-key").ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = accept_key(key);
    let asked = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or("");
    let (protocol, framing) = match stream_protocol(asked) {
        Ok(chosen) => chosen,
        Err(why) => return Ok(crate::call::text(403, &why.to_string())),
    };
    let upgrade = content.upgrade.take().ok_or_else(|| Status::bad_request("the connection cannot be upgraded"))?;
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => greet(TokioIo::new(upgraded), source, framing).await,
            Err(error) => tracing::debug!(%error, "connection upgrade failed"),
        }
    });
    let mut answer = switching(accept);
    if !protocol.is_empty() {
        answer.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(answer)
}

/// The subprotocols of a stream of bytes.
const STREAM_PROTOCOLS: [(&str, Framing); 3] =
    [("", Framing::Binary), ("base64.binary.k8s.io", Framing::Base64), ("binary.k8s.io", Framing::Binary)];

/// The client knows no subprotocol of the server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested protocol(s) are not supported: [{requested}]; supports [{known}]")]
struct UnsupportedProtocols {
    requested: String,
    known: String,
}

/// The first of the client's subprotocols that is known.
fn stream_protocol(asked: &str) -> Result<(&'static str, Framing), UnsupportedProtocols> {
    let known = |name: &str| STREAM_PROTOCOLS.into_iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = asked.split(',').map(str::trim).collect();
    names.iter().find_map(|name| known(name)).ok_or_else(|| {
        let known: Vec<&str> = STREAM_PROTOCOLS.iter().map(|(name, _)| *name).collect();
        UnsupportedProtocols { requested: names.join(" "), known: known.join(" ") }
    })
}

/// How bytes become messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// A chunk holds whole events: one message each, of this opcode.
    Events(u8),
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
            Framing::Binary => chunk.chunks(MESSAGE_BYTES).for_each(|part| out.extend_from_slice(&frame(BINARY, part))),
            Framing::Base64 => chunk.chunks(MESSAGE_BYTES).for_each(|part| {
                out.extend_from_slice(&frame(TEXT, base64::encode(part).as_bytes()));
            }),
        }
        out.freeze()
    }
}

/// Begins with an empty message, which shows the client that the connection works.
async fn greet(mut io: TokioIo<Upgraded>, source: impl Source, framing: Framing) {
    let opcode = if framing == Framing::Base64 { TEXT } else { BINARY };
    if io.write_all(&frame(opcode, &[])).await.is_ok() && io.flush().await.is_ok() {
        send(io, source, framing).await;
    }
}

fn switching(accept: String) -> Answer {
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

fn accept_key(key: &str) -> String {
    base64::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()).as_ref())
}

async fn send(mut io: TokioIo<Upgraded>, mut source: impl Source, framing: Framing) {
    let mut incoming = [0u8; 512];
    loop {
        let out = tokio::select! {
            biased;
            read = io.read(&mut incoming) => match read_client_frame(&incoming[..read.unwrap_or(0)]) {
                ClientFrame::Goodbye => break,
                ClientFrame::Ping(payload) => Bytes::from(frame(PONG, &payload)),
                ClientFrame::Nothing => continue,
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
    let _ = io.write_all(&frame(CLOSE, &1000u16.to_be_bytes())).await;
    let _ = io.shutdown().await;
}

/// What a client of a watch can say.
#[derive(Debug, PartialEq, Eq)]
enum ClientFrame {
    Goodbye,
    Ping(Vec<u8>),
    Nothing,
}

/// Reads a short control frame, which comes masked; nothing read is a goodbye too.
fn read_client_frame(bytes: &[u8]) -> ClientFrame {
    match bytes {
        [] => ClientFrame::Goodbye,
        [head, ..] if head & 0x0f == CLOSE => ClientFrame::Goodbye,
        [head, length, a, b, c, d, payload @ ..] if head & 0x0f == PING => {
            let mask = [a, b, c, d];
            let length = usize::from(length & 0x7f).min(payload.len());
            let unmasked = payload[..length].iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
            ClientFrame::Ping(unmasked.collect())
        }
        _ => ClientFrame::Nothing,
    }
}

/// A chunk of a watch holds whole events: one message each.
fn messages(chunk: &Bytes, opcode: u8) -> Bytes {
    let mut out = BytesMut::with_capacity(chunk.len() + 64);
    if opcode == TEXT {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(&frame(opcode, line));
        }
        return out.freeze();
    }
    let mut rest = &chunk[..];
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = (u32::from_be_bytes(*length) as usize).min(tail.len());
        out.extend_from_slice(&frame(opcode, &tail[..length]));
        rest = &tail[length..];
    }
    out.freeze()
}

/// One unmasked frame, complete in itself.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 10);
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..=125 => out.push(length as u8),
        length @ 126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn control_frames_are_told_apart() {
        assert_eq!(read_client_frame(&[]), ClientFrame::Goodbye);
        assert_eq!(read_client_frame(&[0x88, 0x80, 0, 0, 0, 0]), ClientFrame::Goodbye);
        assert_eq!(read_client_frame(&[0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2]), ClientFrame::Ping(b"hi".to_vec()));
        assert_eq!(read_client_frame(&[0x81, 0x80, 0, 0, 0, 0]), ClientFrame::Nothing);
    }

    #[test]
    fn a_stream_is_sent_in_the_first_subprotocol_that_is_known() {
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
        let sent = messages(&Bytes::from("{\"a\":1}\n{}\n"), TEXT);
        assert_eq!(&sent[..], b"\x81\x08{\"a\":1}\n\x81\x03{}\n");
        assert_eq!(frame(BINARY, &[0; 300])[..4], [0x82, 126, 1, 44]);
        let two = Bytes::from(vec![0, 0, 0, 1, 7, 0, 0, 0, 2, 8, 9]);
        assert_eq!(&messages(&two, BINARY)[..], [0x82, 1, 7, 0x82, 2, 8, 9]);
    }
}
