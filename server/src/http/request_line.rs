//! The request lines of an HTTP/1.1 connection. Go's servers accept any character in a URL; hyper rejects a raw `<`,
//! `>` or backtick with an empty response. They are percent-encoded before hyper reads them.
//!
//! The start of a request follows from the lines of the previous head, and from the length of its body, which hyper
//! reports with the request. If a length is not known (chunked bodies, upgrades), or a client sends a request before
//! the response to one without a body, later requests are passed unchanged.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Version, header};
use http_body::Body;
use stdx::sync::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

/// The position in the requests of a connection, shared by its reader and its service.
#[derive(Clone, Default)]
pub(crate) struct RequestPosition(Arc<Mutex<Position>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// In the head of a request.
    Head { is_first_line: bool, is_line_empty: bool },
    /// The head was read, and this many bytes after it.
    HeadRead { more: u64 },
    /// In a body with `left` remaining bytes.
    Body { left: u64 },
    /// Everything is passed as it is.
    Unknown,
}

const START: Position = Position::Head { is_first_line: true, is_line_empty: true };

impl Default for Position {
    fn default() -> Position {
        START
    }
}

impl RequestPosition {
    /// Reports that the head of a request was parsed; no byte was read after it.
    pub(crate) fn set_request<B: Body>(&self, request: &Request<B>) {
        let is_plain = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::UPGRADE);
        let length = request.body().size_hint().exact().filter(|_| is_plain);
        self.0.lock().set_body(length);
    }
}

impl Position {
    fn set_body(&mut self, length: Option<u64>) {
        let left = match (*self, length) {
            (Position::HeadRead { more }, Some(length)) => length.checked_sub(more),
            _ => None,
        };
        *self = match left {
            Some(0) => START,
            Some(left) => Position::Body { left },
            None => Position::Unknown,
        };
    }

    /// Advances by the bytes that were read; returns their replacement if they must be changed.
    fn filter(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut changed) = (0, None);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let is_request_line = matches!(self, Position::Head { is_first_line: true, .. });
            let piece = &rest[..self.advance(rest)];
            if is_request_line && memchr::memchr3(b'<', b'>', b'`', piece).is_some() {
                encode(piece, changed.get_or_insert_with(|| bytes[..at].to_vec()));
            } else if let Some(changed) = &mut changed {
                changed.extend_from_slice(piece);
            }
            at += piece.len();
        }
        changed
    }

    /// Moves to the end of the line, of the body, or of the bytes; returns the number of bytes.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len() as u64;
        match *self {
            Position::Head { is_first_line, is_line_empty } => {
                let line = memchr::memchr(b'\n', bytes);
                let text = &bytes[..line.unwrap_or(bytes.len())];
                let is_line_empty = is_line_empty && text.iter().all(|byte| *byte == b'\r');
                *self = match (line, is_line_empty) {
                    (None, _) => Position::Head { is_first_line, is_line_empty },
                    // Empty lines before a request are ignored.
                    (Some(_), true) if is_first_line => START,
                    (Some(_), true) => Position::HeadRead { more: 0 },
                    (Some(_), false) => Position::Head { is_first_line: false, is_line_empty: true },
                };
                return line.map_or(bytes.len(), |line| line + 1);
            }
            Position::HeadRead { more } => *self = Position::HeadRead { more: more.saturating_add(length) },
            Position::Body { left } if left > length => *self = Position::Body { left: left - length },
            Position::Body { left } => {
                *self = START;
                return usize::try_from(left).unwrap_or(bytes.len());
            }
            Position::Unknown => {}
        }
        bytes.len()
    }
}

/// Neither the method nor the version contains such a character, only the target.
fn encode(line: &[u8], out: &mut Vec<u8>) {
    for byte in line {
        match byte {
            b'<' | b'>' | b'`' => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => out.push(*byte),
        }
    }
}

/// Reads a connection and rewrites its request lines for hyper.
#[derive(Default)]
pub(super) struct RequestReader {
    position: RequestPosition,
    /// Encoded bytes that did not fit into the buffer.
    rest: Vec<u8>,
}

impl RequestReader {
    pub(super) fn new(position: RequestPosition) -> RequestReader {
        RequestReader { position, rest: Vec::new() }
    }

    pub(super) fn poll_read(
        &mut self,
        inner: Pin<&mut (impl AsyncRead + ?Sized)>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            let start = out.filled().len();
            ready!(inner.poll_read(cx, out))?;
            match self.position.0.lock().filter(&out.filled()[start..]) {
                None => return Poll::Ready(Ok(())),
                Some(changed) => self.rest = changed,
            }
            out.set_filled(start);
        }
        let length = self.rest.len().min(out.remaining());
        out.put_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that hyper reads if a client sends requests in pieces of `size` bytes. Each request has the length of
    /// its body.
    fn filtered(sent: &[(&str, Option<u64>)], size: usize) -> String {
        let (mut position, mut got) = (START, Vec::new());
        for (request, length) in sent {
            for piece in request.as_bytes().chunks(size) {
                got.extend(position.filter(piece).unwrap_or_else(|| piece.to_vec()));
                if let Position::HeadRead { .. } = position {
                    position.set_body(*length);
                }
            }
        }
        String::from_utf8(got).expect("text")
    }

    fn check(sent: &[(&str, Option<u64>)], want: &str) {
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(filtered(sent, size), want, "{sent:?} in pieces of {size}");
        }
    }

    const GET: &str = "GET /a<b>?c=`<` HTTP/1.1\r\nx: <y>\r\n\r\n";
    const ENCODED: &str = "GET /a%3Cb%3E?c=%60%3C%60 HTTP/1.1\r\nx: <y>\r\n\r\n";

    #[test]
    fn only_targets_are_changed() {
        check(&[(GET, Some(0))], ENCODED);
        check(&[(GET, Some(0)); 3], &ENCODED.repeat(3));
        check(&[(&GET.replace('\r', ""), Some(0))], &ENCODED.replace('\r', ""));
        check(&[("\r\n", None), (GET, Some(0)), ("\r\n\r\n", None), (GET, Some(0))], &{
            format!("\r\n{ENCODED}\r\n\r\n{ENCODED}")
        });
        check(&[("<<<", None)], "%3C%3C%3C");
        check(&[("", None)], "");
    }

    #[test]
    fn bodies_are_not_changed() {
        let post = "POST /a HTTP/1.1\r\nx: y\r\n\r\nGET /<b> HTTP/1.1\n";
        check(&[(post, Some(18)), (GET, Some(0))], &format!("{post}{ENCODED}"));
        check(&[(post, None), (GET, Some(0))], &format!("{post}{GET}"));
        // The next request arrives with the end of the body.
        let (head, body) = post.split_at(post.len() - 5);
        check(&[(head, Some(18)), (&format!("{body}{GET}"), Some(0))], &format!("{post}{ENCODED}"));
    }

    #[test]
    fn a_request_after_an_unknown_position_is_not_changed() {
        // The second request arrived with the first one: hyper has already read it.
        let two = GET.repeat(2);
        assert_eq!(filtered(&[(&two, Some(0)), (GET, Some(0))], 1000), format!("{ENCODED}{GET}{GET}"));
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n< < <";
        check(&[(preface, None)], preface);
    }
}
