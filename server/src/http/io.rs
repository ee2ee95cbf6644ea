//! The socket under TLS: it closes a connection whose client no longer reads, and it limits the kernel's buffer for a
//! watch.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use super::request_line::{RequestPosition, RequestReader};
use crate::request::watch_flag::WatchFlag;

/// A client that reads no byte for this long is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// The send buffer of a connection with a watch; the kernel doubles the requested size. A response of one piece may use
/// far more, since it ends.
const WATCH_SEND_BYTES: usize = 32 << 10;

/// The limit of encrypted bytes that wait for the socket of a watch.
const WATCH_TLS_BYTES: usize = 8 << 10;

/// TLS over a socket; a watch narrows both.
pub(crate) struct TlsConnection {
    tls: TlsStream<Socket>,
    watched: WatchFlag,
    narrowed: bool,
    reader: RequestReader,
}

impl TlsConnection {
    pub(crate) fn new(tls: TlsStream<Socket>, watched: WatchFlag, position: RequestPosition) -> TlsConnection {
        TlsConnection { tls, watched, narrowed: false, reader: RequestReader::new(position) }
    }

    fn shrink_buffers(&mut self) {
        if !self.narrowed && self.watched.is_set() {
            self.narrowed = true;
            let (socket, session) = self.tls.get_mut();
            session.set_buffer_limit(Some(WATCH_TLS_BYTES));
            // If the kernel rejects the size, it keeps its default.
            let _ = socket2::SockRef::from(&socket.stream).set_send_buffer_size(WATCH_SEND_BYTES);
        }
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let TlsConnection { tls, reader, .. } = &mut *self;
        reader.poll_read(Pin::new(tls), cx, buffer)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shrink_buffers();
        Pin::new(&mut self.tls).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.shrink_buffers();
        Pin::new(&mut self.tls).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

/// A socket that closes the connection if the client reads nothing.
pub struct Socket {
    stream: TcpStream,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Wraps an accepted connection.
    pub fn new(stream: TcpStream) -> Socket {
        Socket { stream, stalled: None }
    }

    /// Returns the result of a write; a write that waits for too long becomes an error.
    fn guard<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.guard(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn closes_connections_of_clients_that_do_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a connection");
        let (stream, _) = listener.accept().await.expect("the other end");
        let mut socket = Socket::new(stream);
        let all = vec![0; 16 << 20];
        let error = socket.write_all(&all).await.expect_err("the client does not read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }
}
