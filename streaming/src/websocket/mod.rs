//! WebSocket after the handshake: frames, and the two halves of a connection. Independent of Kubernetes' channels.

mod bytes;
mod frame;

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use ::bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

pub(crate) use bytes::byte_stream;
pub use frame::close_payload;
pub use frame::{Decoder, Event, Kind, Opcode, Role, encode};

/// The code of a close without an error.
pub const CLOSE_NORMAL: u16 = 1000;
pub(crate) const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// The reading half; it replies to pings through the sender.
pub struct Receiver<R, W> {
    io: R,
    decoder: Decoder,
    buffer: BytesMut,
    sender: Sender<W>,
}

/// The writing half, for whole messages; clones write to the same connection.
pub struct Sender<W> {
    half: Arc<Mutex<WriteHalf<W>>>,
    role: Role,
}

struct WriteHalf<W> {
    io: W,
    /// Nothing may follow a close.
    closed: bool,
}

impl<W> Clone for Sender<W> {
    fn clone(&self) -> Self {
        Self { half: self.half.clone(), role: self.role }
    }
}

/// The halves of a WebSocket connection.
pub fn split<R, W>(read: R, write: W, role: Role) -> (Receiver<R, W>, Sender<W>) {
    let sender = Sender { half: Arc::new(Mutex::new(WriteHalf { io: write, closed: false })), role };
    let receiver = Receiver { io: read, decoder: Decoder::new(role), buffer: BytesMut::new(), sender: sender.clone() };
    (receiver, sender)
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Receiver<R, W> {
    /// The next piece of a message, or the close; None if the connection just ends. An invalid frame is an error,
    /// which is reported to the other end.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            match self.decoder.decode(&mut self.buffer) {
                Ok(Some(Event::Ping(data))) => self.sender.send(Opcode::Pong, &[&data]).await?,
                Ok(Some(Event::Pong(_))) => {}
                Ok(Some(Event::Close { code, reason })) => {
                    // A close gets a reply, unless ours was first.
                    let _ = self.sender.close(code.unwrap_or(CLOSE_NORMAL), "").await;
                    return Ok(Some(Event::Close { code, reason }));
                }
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {
                    self.buffer.reserve(crate::BUFFER);
                    if self.io.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    let _ = self.sender.close(CLOSE_PROTOCOL_ERROR, &error.to_string()).await;
                    return Err(Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Sends one message of several parts.
    pub async fn send(&self, opcode: Opcode, parts: &[&[u8]]) -> Result<()> {
        let mask = (self.role == Role::Client).then(random::<4>);
        let mut frame = BytesMut::with_capacity(14 + parts.iter().map(|part| part.len()).sum::<usize>());
        encode(opcode, parts, mask, &mut frame);
        let mut half = self.half.lock().await;
        if half.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        half.closed = opcode == Opcode::Close;
        half.io.write_all(&frame).await?;
        half.io.flush().await
    }

    /// Sends a close and shuts down our direction.
    pub async fn close(&self, code: u16, reason: &str) -> Result<()> {
        self.send(Opcode::Close, &[&close_payload(code, reason)]).await?;
        self.half.lock().await.io.shutdown().await
    }
}

/// Masks only protect intermediate caches: without randomness a fixed one suffices.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0x5a; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_ping_and_close_once() {
        let (near, far) = tokio::io::duplex(1024);
        let (read, write) = tokio::io::split(near);
        let (mut server, sending) = split(read, write, Role::Server);
        let (read, write) = tokio::io::split(far);
        let (mut client, asking) = split(read, write, Role::Client);
        asking.send(Opcode::Ping, &[b"there?"]).await.unwrap();
        asking.send(Opcode::Binary, &[b"x"]).await.unwrap();
        asking.close(CLOSE_NORMAL, "done").await.unwrap();
        assert!(matches!(server.next().await.unwrap(), Some(Event::Data { last: true, .. })));
        let closed = Event::Close { code: Some(CLOSE_NORMAL), reason: "done".to_string() };
        assert_eq!(server.next().await.unwrap(), Some(closed));
        assert_eq!(sending.send(Opcode::Binary, &[b"late"]).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let answer = Event::Close { code: Some(CLOSE_NORMAL), reason: String::new() };
        assert_eq!(client.next().await.unwrap(), Some(answer), "the pong came before it");
        assert_eq!(client.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn reports_protocol_errors() {
        let (near, mut far) = tokio::io::duplex(1024);
        let (read, write) = tokio::io::split(near);
        let (mut server, _) = split(read, write, Role::Server);
        far.write_all(&[0x82, 0]).await.unwrap();
        assert_eq!(server.next().await.unwrap_err().kind(), ErrorKind::InvalidData);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        assert_eq!(received[..4], [0x88, received.len() as u8 - 2, 3, 0xea]);
    }
}
