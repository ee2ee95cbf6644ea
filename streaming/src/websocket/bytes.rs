//! A byte stream in binary messages, whose boundaries have no meaning.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

use super::{CLOSE_NORMAL, Event, Kind, Receiver, Role, Sender, split};
use crate::{BUFFER, Connection};

/// A WebSocket connection as a byte stream. There is no half-close: either end's close ends both directions.
pub(crate) fn byte_stream<IO: Connection>(io: IO, role: Role) -> DuplexStream {
    let (near, far) = tokio::io::duplex(2 * BUFFER);
    let (read, write) = tokio::io::split(io);
    let (receiver, sender) = split(read, write, role);
    tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(far);
        let incoming = async {
            let result = incoming(receiver, writer).await;
            tracing::debug!(?result, "WebSocket byte stream ended");
        };
        let outgoing = outgoing(reader, sender);
        // When our end is done, the other's close is awaited; after their close nothing can be sent.
        tokio::pin!(incoming);
        tokio::select! {
            biased;
            () = &mut incoming => {}
            _ = outgoing => { let _ = tokio::time::timeout(CLOSING, incoming).await; }
        }
    });
    near
}

const CLOSING: std::time::Duration = std::time::Duration::from_secs(10);

async fn incoming<R, W, O>(mut receiver: Receiver<R, W>, mut out: O) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    O: AsyncWrite + Unpin,
{
    while let Some(event) = receiver.next().await? {
        match event {
            Event::Data { kind: Kind::Binary, data, .. } => out.write_all(&data).await?,
            Event::Data { kind: Kind::Text, .. } => {
                return Err(Error::new(ErrorKind::InvalidData, "unexpected text message in a binary stream"));
            }
            _ => break,
        }
    }
    out.shutdown().await
}

async fn outgoing<R, W>(mut reader: R, sender: Sender<W>) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return sender.close(CLOSE_NORMAL, "").await,
            count => sender.send(super::Opcode::Binary, &[&buffer[..count]]).await?,
        }
    }
}
