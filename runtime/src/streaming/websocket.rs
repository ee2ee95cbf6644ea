//! Channels over WebSocket: each message begins with its channel's number.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Session;
use super::channels::{Channels, DEPTH, In, Out, resize};
use super::handshake::Protocol;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const LONGEST_MESSAGE: usize = 1 << 20;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Since version 5: the channel named after it is done.
const DONE: u8 = 255;

/// Takes over a connection. The task ends when both sides are done.
pub fn start(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    protocol: Protocol,
    session: &Session,
) -> (Channels, JoinHandle<()>) {
    let ports = match session {
        Session::PortForward(request) => request.port.iter().map(|p| *p as u16).collect(),
        _ => Vec::new(),
    };
    let (to_session, from_client) = mpsc::channel(DEPTH);
    let (to_client, from_session) = mpsc::channel(DEPTH);
    let task = tokio::spawn(carry(io, protocol, ports, to_session, from_session));
    (Channels { from_client, to_client }, task)
}

async fn carry(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    protocol: Protocol,
    ports: Vec<u16>,
    to_session: mpsc::Sender<In>,
    from_session: mpsc::Receiver<Out>,
) {
    let (reader, writer) = tokio::io::split(io);
    let (pongs, to_pong) = mpsc::channel(1);
    let forwards = !ports.is_empty();
    let reading = tokio::spawn(read(reader, protocol, forwards, to_session, pongs));
    write(writer, ports, from_session, to_pong).await;
    reading.abort();
}

async fn write(
    mut io: impl AsyncWrite + Unpin,
    ports: Vec<u16>,
    mut from_session: mpsc::Receiver<Out>,
    mut pongs: mpsc::Receiver<Bytes>,
) {
    // Each forwarded port's two channels begin with its number.
    for (index, port) in ports.iter().enumerate() {
        for channel in [index * 2, index * 2 + 1] {
            let [low, high] = port.to_le_bytes();
            if io.write_all(&frame(BINARY, &[channel as u8, low, high])).await.is_err() {
                return;
            }
        }
    }
    loop {
        let bytes = tokio::select! {
            biased;
            Some(ping) = pongs.recv() => frame(PONG, &ping),
            out = from_session.recv() => match out {
                Some(out) => match message(out) {
                    Some(message) => frame(BINARY, &message),
                    None => continue,
                },
                None => break,
            },
        };
        if io.write_all(&bytes).await.is_err() {
            return;
        }
        let _ = io.flush().await;
    }
    let _ = io.write_all(&frame(CLOSE, &1000u16.to_be_bytes())).await;
    let _ = io.shutdown().await;
}

fn message(out: Out) -> Option<Vec<u8>> {
    let (channel, data) = match out {
        Out::Stdout(data) => (STDOUT, data),
        Out::Stderr(data) => (STDERR, data),
        Out::Status(data) => (STATUS, data),
        Out::Port(index, data) => ((index * 2) as u8, data),
        Out::PortError(index, data) => ((index * 2 + 1) as u8, data),
        // There is no word for it here; the connection's end says it.
        Out::PortEnd(_) => return None,
    };
    let mut message = Vec::with_capacity(data.len() + 1);
    message.push(channel);
    message.extend_from_slice(&data);
    Some(message)
}

async fn read(
    mut io: impl AsyncRead + Unpin,
    protocol: Protocol,
    forwards: bool,
    to_session: mpsc::Sender<In>,
    pongs: mpsc::Sender<Bytes>,
) {
    let mut buffer = BytesMut::new();
    let mut partial = BytesMut::new();
    loop {
        while let Some(found) = parse(&mut buffer) {
            let Ok((head, payload)) = found else { return };
            match head & 0x0f {
                CLOSE => return,
                PING => drop(pongs.send(payload).await),
                CONTINUATION | TEXT | BINARY => {
                    partial.extend_from_slice(&payload);
                    if partial.len() > LONGEST_MESSAGE {
                        return;
                    }
                    if head & 0x80 != 0
                        && let Some(input) = input(partial.split().freeze(), protocol, forwards)
                        && to_session.send(input).await.is_err()
                    {
                        return;
                    }
                }
                _ => {}
            }
        }
        match io.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn input(mut message: Bytes, protocol: Protocol, forwards: bool) -> Option<In> {
    if message.is_empty() {
        return None;
    }
    let channel = message.get_u8();
    match channel {
        DONE if protocol.closes => match (message.first()?, forwards) {
            (0, false) => Some(In::StdinEnd),
            (index, true) => Some(In::PortEnd(usize::from(*index) / 2)),
            _ => None,
        },
        _ if forwards => channel.is_multiple_of(2).then(|| In::Port(usize::from(channel) / 2, message)),
        STDIN => Some(In::Stdin(message)),
        RESIZE => resize(&message),
        _ => None,
    }
}

/// Takes one whole frame off the buffer, unmasked. An error is a client that does not keep to the protocol.
fn parse(buffer: &mut BytesMut) -> Option<Result<(u8, Bytes), ()>> {
    let (head, second) = (*buffer.first()?, *buffer.get(1)?);
    let (extended, mut length) = match second & 0x7f {
        126 => (2, usize::from(u16::from_be_bytes(buffer.get(2..4)?.try_into().ok()?))),
        127 => (8, usize::try_from(u64::from_be_bytes(buffer.get(2..10)?.try_into().ok()?)).unwrap_or(usize::MAX)),
        short => (0, usize::from(short)),
    };
    if second & 0x80 == 0 || length > LONGEST_MESSAGE {
        return Some(Err(()));
    }
    let start = 2 + extended + 4;
    if buffer.len() < start + length {
        return None;
    }
    let mask: [u8; 4] = buffer[start - 4..start].try_into().ok()?;
    buffer.advance(start);
    let mut payload = buffer.split_to(length);
    length = 0;
    for byte in payload.iter_mut() {
        *byte ^= mask[length % 4];
        length += 1;
    }
    Some(Ok((head, payload.freeze())))
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

    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut out = frame(opcode, payload);
        out[1] |= 0x80;
        let head = out.len() - payload.len();
        let body = payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
        let body: Vec<u8> = mask.into_iter().chain(body).collect();
        out.truncate(head);
        out.extend(body);
        out
    }

    #[test]
    fn frames_of_all_lengths() {
        for length in [0, 5, 125, 126, 70_000] {
            let payload = vec![b'x'; length];
            let whole = masked(BINARY, &payload);
            for missing in [1, 3] {
                let mut part = BytesMut::from(&whole[..whole.len() - missing]);
                assert!(parse(&mut part).is_none(), "{length} without {missing}");
            }
            let mut buffer = BytesMut::from(&whole[..]);
            let (head, found) = parse(&mut buffer).unwrap().unwrap();
            assert_eq!((head & 15, found.len()), (BINARY, length));
            assert!(buffer.is_empty());
        }
        assert!(parse(&mut BytesMut::from(&frame(BINARY, b"unmasked")[..])).unwrap().is_err());
    }

    #[test]
    fn channels_of_commands_and_ports() {
        let v5 = Protocol { name: "v5.channel.k8s.io", closes: true };
        let v4 = Protocol { name: "v4.channel.k8s.io", closes: false };
        let table: [(&[u8], Protocol, bool, Option<In>); 7] = [
            (b"\x00hi", v4, false, Some(In::Stdin(Bytes::from_static(b"hi")))),
            (b"\xff\x00", v5, false, Some(In::StdinEnd)),
            (b"\xff\x00", v4, false, None),
            (b"\x04{\"Width\":1,\"Height\":2}", v4, false, Some(In::Resize { width: 1, height: 2 })),
            (b"\x02data", v4, true, Some(In::Port(1, Bytes::from_static(b"data")))),
            (b"\x03error", v4, true, None),
            (b"", v4, true, None),
        ];
        for (message, protocol, forwards, expected) in table {
            assert_eq!(input(Bytes::from_static(message), protocol, forwards), expected, "{message:?}");
        }
    }
}
