//! A connection with an idle timeout.

use std::io::{ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

pub(crate) struct IdleTimeout<IO> {
    io: IO,
    period: Duration,
    last: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl<IO> IdleTimeout<IO> {
    pub(crate) fn new(io: IO, period: Duration) -> Self {
        Self { io, period, last: Instant::now(), sleep: Box::pin(tokio::time::sleep(period)) }
    }

    /// The reader gets the timeout; written bytes reset it too.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.sleep.as_mut().poll(context).is_ready() {
            let due = self.last + self.period;
            if due <= Instant::now() {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
            self.sleep.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn seen<T>(&mut self, poll: Poll<Result<T>>) -> Poll<Result<T>> {
        if poll.is_ready() {
            self.last = Instant::now();
        }
        poll
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for IdleTimeout<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let poll = Pin::new(&mut self.io).poll_read(context, out);
        if poll.is_pending() { self.poll_idle(context) } else { self.seen(poll) }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(context, data);
        self.seen(poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn times_out_only_when_idle() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = IdleTimeout::new(near, Duration::from_secs(10));
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(6)).await;
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'x');
        assert_eq!(near.read_u8().await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), 16);
    }
}
