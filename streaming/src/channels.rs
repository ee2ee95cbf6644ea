//! Channels over WebSocket: the first byte of a message is its channel. Used for remote commands and port forwarding.

use std::io::{Error, ErrorKind, Result};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

use crate::BUFFER;
use crate::websocket::{Event, Opcode, Receiver, Sender};

/// A message of this channel closes another channel (protocol v5).
pub(crate) const CLOSE: u8 = 255;
/// The maximum size of a base64 message, which is decoded as a whole.
const MAX_ENCODED: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw,
    Base64,
}

/// A pipe: what is written at one end is read at the other.
pub(crate) fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(2 * BUFFER)
}

pub(crate) async fn send<W: AsyncWrite + Unpin>(
    sender: &Sender<W>,
    codec: Codec,
    channel: u8,
    data: &[u8],
) -> Result<()> {
    match codec {
        Codec::Raw => sender.send(Opcode::Binary, &[&[channel], data]).await,
        Codec::Base64 => sender.send(Opcode::Text, &[&[b'0' + channel], STANDARD.encode(data).as_bytes()]).await,
    }
}

/// Sends everything that is read as messages of a channel, until the end.
pub(crate) async fn pump<R, W>(mut reader: R, sender: &Sender<W>, codec: Codec, channel: u8) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return Ok(()),
            count => send(sender, codec, channel, &buffer[..count]).await?,
        }
    }
}

/// Distributes the messages of a connection: a sink for each channel, None for channels that are not read.
pub(crate) struct Demux {
    pub codec: Codec,
    /// Whether [`CLOSE`] messages are supported.
    pub half_close: bool,
    pub sinks: Vec<Option<DuplexStream>>,
}

impl Demux {
    /// Distributes messages until the other end closes. A sink without a reader is dropped; a full sink blocks all
    /// sinks.
    pub(crate) async fn run<R, W>(mut self, receiver: &mut Receiver<R, W>) -> Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut channel = None;
        let mut encoded = Vec::new();
        while let Some(event) = receiver.next().await? {
            let Event::Data { mut data, first, last, .. } = event else { break };
            if first {
                channel = None;
            }
            if channel.is_none() && !data.is_empty() {
                channel = Some(self.channel(data.get_u8()));
            }
            let Some(channel) = channel else { continue };
            match self.codec {
                Codec::Raw => self.deliver(channel, &data).await,
                Codec::Base64 => {
                    gather(&mut encoded, &data)?;
                    if last {
                        let decoded = STANDARD.decode(std::mem::take(&mut encoded));
                        let decoded = decoded.map_err(|error| Error::new(ErrorKind::InvalidData, error.to_string()))?;
                        self.deliver(channel, &decoded.into()).await;
                    }
                }
            }
        }
        Ok(())
    }

    fn channel(&self, byte: u8) -> u8 {
        match self.codec {
            Codec::Raw => byte,
            Codec::Base64 => byte.wrapping_sub(b'0'),
        }
    }

    async fn deliver(&mut self, channel: u8, data: &Bytes) {
        if channel == CLOSE && self.half_close {
            if let Some(sink) = data.first().and_then(|closed| self.sinks.get_mut(usize::from(*closed))) {
                *sink = None;
            }
            return;
        }
        let Some(slot) = self.sinks.get_mut(usize::from(channel)) else { return };
        if let Some(sink) = slot
            && sink.write_all(data).await.is_err()
        {
            *slot = None;
        }
    }
}

fn gather(encoded: &mut Vec<u8>, data: &Bytes) -> Result<()> {
    if encoded.len() + data.len() > MAX_ENCODED {
        return Err(Error::new(ErrorKind::InvalidData, "base64 message larger than 4 MiB"));
    }
    encoded.extend_from_slice(data);
    Ok(())
}
