//! WebSocket after its handshake: frames, and the two halves of a connection. Nothing of Kubernetes' channels.

mod bytes;
mod frame;

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use ::bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

pub use bytes::byte_stream;
pub use frame::{Decoder, Event, Kind, Opcode, Role, close_payload, encode};

pub const CLOSE_NORMAL: u16 = 1000;
pub const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// The half that reads; it answers pings by the other.
pub struct Receiver<R, W> {
    io: R,
    decoder: Decoder,
    buffer: BytesMut,
    sender: Sender<W>,
}

/// The half that writes, whole messages at a time; clones write to the same connection.
pub struct Sender<W> {
    io: Arc<Mutex<W>>,
    role: Role,
}

impl<W> Clone for Sender<W> {
    fn clone(&self) -> Self {
        Self { io: self.io.clone(), role: self.role }
    }
}

pub fn split<R, W>(read: R, write: W, role: Role) -> (Receiver<R, W>, Sender<W>) {
    let sender = Sender { io: Arc::new(Mutex::new(write)), role };
    let receiver = Receiver { io: read, decoder: Decoder::new(role), buffer: BytesMut::new(), sender: sender.clone() };
    (receiver, sender)
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Receiver<R, W> {
    /// The next piece of a message, or the close; none where the connection just ends. A frame that breaks the
    /// rules is an error, and the other end is told.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            match self.decoder.decode(&mut self.buffer) {
                Ok(Some(Event::Ping(data))) => self.sender.send(Opcode::Pong, &[&data]).await?,
                Ok(Some(Event::Pong(_))) => {}
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {
                    self.buffer.reserve(crate::BUFFER);
                    if self.io.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    let payload = close_payload(CLOSE_PROTOCOL_ERROR, &error.to_string());
                    let _ = self.sender.send(Opcode::Close, &[&payload]).await;
                    return Err(Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    pub async fn send(&self, opcode: Opcode, parts: &[&[u8]]) -> Result<()> {
        let mask = (self.role == Role::Client).then(random::<4>);
        let mut frame = BytesMut::with_capacity(14 + parts.iter().map(|part| part.len()).sum::<usize>());
        encode(opcode, parts, mask, &mut frame);
        let mut io = self.io.lock().await;
        io.write_all(&frame).await?;
        io.flush().await
    }

    /// Says that no more will come, and closes our direction.
    pub async fn close(&self, code: u16, reason: &str) -> Result<()> {
        self.send(Opcode::Close, &[&close_payload(code, reason)]).await?;
        self.io.lock().await.shutdown().await
    }
}

/// Masks only keep caches between the ends from being misled: without randomness a fixed one is still a mask.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0x5a; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}
