//! The first line of a connection. Go's servers accept any character in a URL; hyper refuses a raw `<`, `>` or backtick
//! with an empty response. Those of the first request are percent-encoded before hyper sees them. Only hyper knows
//! where later requests begin: they get its response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The start of HTTP/2, which has no request line.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// A longer line is left to hyper.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How far the first line of a connection has come.
pub enum RequestLine {
    Reading(Vec<u8>),
    /// What was read and not passed on yet.
    Passing(Vec<u8>),
    Done,
}

impl RequestLine {
    pub fn poll_read(
        &mut self,
        inner: Pin<&mut (impl AsyncRead + ?Sized)>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let RequestLine::Reading(line) = self {
            ready!(read_line(line, inner, cx))?;
            *self = RequestLine::Passing(encoded(std::mem::take(line)));
            return Poll::Ready(self.pass(out));
        }
        match self {
            RequestLine::Done => inner.poll_read(cx, out),
            _ => Poll::Ready(self.pass(out)),
        }
    }

    fn pass(&mut self, out: &mut ReadBuf<'_>) -> io::Result<()> {
        let RequestLine::Passing(rest) = self else { return Ok(()) };
        let length = rest.len().min(out.remaining());
        out.put_slice(&rest[..length]);
        rest.drain(..length);
        if rest.is_empty() {
            *self = RequestLine::Done;
        }
        Ok(())
    }
}

/// Reads until the line is whole, or it is clear that there is none.
fn read_line(
    line: &mut Vec<u8>,
    mut inner: Pin<&mut (impl AsyncRead + ?Sized)>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let mut bytes = [0; 4096];
        let mut piece = ReadBuf::new(&mut bytes);
        ready!(inner.as_mut().poll_read(cx, &mut piece))?;
        line.extend_from_slice(piece.filled());
        let is_whole = piece.filled().contains(&b'\n') || line.starts_with(PREFACE) || line.len() >= MAX_LINE_BYTES;
        if is_whole || piece.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
    }
}

/// `METHOD TARGET VERSION` with a target that hyper takes.
fn encoded(bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let space = |byte: &u8| *byte == b' ';
    let (Some(start), Some(stop)) = (bytes[..end].iter().position(space), bytes[..end].iter().rposition(space)) else {
        return bytes;
    };
    let is_refused = |byte: &u8| matches!(byte, b'<' | b'>' | b'`');
    if !bytes[start..stop].iter().any(is_refused) {
        return bytes;
    }
    let mut out = bytes[..start].to_vec();
    for byte in &bytes[start..stop] {
        match is_refused(byte) {
            true => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => out.push(*byte),
        }
    }
    out.extend_from_slice(&bytes[stop..]);
    out
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Filtered<S>(S, RequestLine);

    impl<S: AsyncRead + Unpin> AsyncRead for Filtered<S> {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let Filtered(inner, line) = &mut *self;
            line.poll_read(Pin::new(inner), cx, out)
        }
    }

    async fn check(sent: &str, want: &str) {
        for size in [1, 7, sent.len().max(1)] {
            let (mut client, server) = tokio::io::duplex(8);
            let bytes = sent.as_bytes().to_vec();
            tokio::spawn(async move {
                for piece in bytes.chunks(size) {
                    client.write_all(piece).await.expect("a write");
                }
            });
            let mut got = String::new();
            let mut filtered = Filtered(server, RequestLine::Reading(Vec::new()));
            filtered.read_to_string(&mut got).await.expect("all of it");
            assert_eq!(got, want, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn only_the_target_of_the_first_line_is_changed() {
        check("GET /a<b>?c=`<` HTTP/1.1\r\nx: <y>\r\n\r\n", "GET /a%3Cb%3E?c=%60%3C%60 HTTP/1.1\r\nx: <y>\r\n\r\n")
            .await;
        check("POST /a HTTP/1.1\r\n\r\n<b>", "POST /a HTTP/1.1\r\n\r\n<b>").await;
        check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n< < <", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n< < <").await;
        check("<<<", "<<<").await;
        check("", "").await;
        let long = format!("GET /{} HTTP/1.1\r\n", "<".repeat(MAX_LINE_BYTES));
        check(&long, &long).await;
    }
}
