//! A stream held by its owner.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::entry::Inbound;
use super::headers::{Headers, header};
use super::session::Shared;

/// Dropping it flushes written data; [`Stream::reset`] aborts it.
pub struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) headers: Headers,
}

impl Stream {
    /// The number of the stream.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Resets the stream.
    pub fn reset(self) {
        self.shared.lock().reset(self.id);
        self.shared.outgoing.notify_one();
    }

    /// Waits until the other end has accepted the stream.
    pub(super) async fn taken(&self) -> Result<()> {
        std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            let ended = state.ended.clone();
            let Some(entry) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(gone(ended))) };
            // A stream that was accepted and ended quickly may already have all its data.
            if entry.replied {
                return Poll::Ready(Ok(()));
            }
            if entry.reset {
                return Poll::Ready(Err(gone(ended)));
            }
            entry.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

fn gone(ended: Option<String>) -> Error {
    match ended {
        Some(reason) => Error::new(ErrorKind::ConnectionAborted, reason),
        None => Error::new(ErrorKind::ConnectionReset, "the stream was reset"),
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let mut state = self.shared.lock();
        let ended = state.ended.clone();
        let Some(entry) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(gone(ended))) };
        let count = entry.received.len().min(out.remaining());
        if count > 0 {
            out.put_slice(&entry.received[..count]);
            entry.received.advance(count);
            state.consume(self.id, count);
            if state.may_send() {
                self.shared.outgoing.notify_one();
            }
            drop(state);
            self.shared.room.notify_one();
            return Poll::Ready(Ok(()));
        }
        match entry.inbound {
            Inbound::Finished => Poll::Ready(Ok(())),
            Inbound::Gone => Poll::Ready(Err(gone(ended))),
            Inbound::Open => {
                entry.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let mut state = self.shared.lock();
        let (limit, ended) = (state.limits.buffer, state.ended.clone());
        let Some(entry) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(gone(ended))) };
        if entry.reset || ended.is_some() {
            return Poll::Ready(Err(gone(ended)));
        }
        if entry.finish {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let count = data.len().min(limit - entry.waiting.len().min(limit));
        if count == 0 && !data.is_empty() {
            entry.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        entry.waiting.extend_from_slice(&data[..count]);
        state.written(self.id);
        drop(state);
        self.shared.outgoing.notify_one();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.shared.lock();
        if let Some(entry) = state.streams.get_mut(&self.id) {
            entry.finish = true;
            state.written(self.id);
        }
        drop(state);
        self.shared.outgoing.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().release(self.id);
        self.shared.outgoing.notify_one();
        self.shared.room.notify_one();
    }
}
