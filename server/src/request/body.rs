//! The bodies of responses: complete, a list in chunks, or a stream.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};

use crate::request::turns::Turns;
use crate::storage::cache::Item;

/// Watches are written in pieces of about this size.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// A list ends: it may have larger ones, which costs fewer turns.
const LIST_CHUNK_BYTES: usize = 128 << 10;

/// The body of a response: bytes, a list that is encoded while it is sent, or a stream.
pub enum Body {
    Full(Option<Bytes>),
    List(ListBody),
    Stream(StreamBody),
    /// A list for this process: its head, then each object as it is kept.
    Pieces(std::vec::IntoIter<Bytes>),
    /// Another body, sent in turns with others.
    Paced(Box<Paced>),
    /// Another body, and what is held until its end: seats, or the last audit event.
    Held(Box<Held>),
}

/// A body with a value that is dropped at its end.
pub struct Held {
    body: Body,
    /// Dropped with the body, or at its last byte.
    until_end: Option<Box<dyn Any + Send>>,
}

/// What one of a crowd sends in a turn: two records of TLS.
const TURN_BYTES: usize = 32 << 10;

/// A body that is sent in turns with others.
pub struct Paced {
    body: Body,
    /// Of the body, and not sent yet.
    piece: Bytes,
    turns: Turns,
    /// The first piece is sent in the turn that produced it.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Paced {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(turn) = &mut self.turn {
            std::task::ready!(turn.as_mut().poll(cx));
            self.turn = None;
        }
        if self.piece.is_empty() {
            let Some(Ok(frame)) = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            self.piece = frame.into_data().unwrap_or_default();
        }
        let piece = self.piece.split_to(TURN_BYTES.min(self.piece.len()));
        self.turn = Some(self.turns.boxed());
        Poll::Ready(Some(piece))
    }

    fn is_done(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + self.piece.len() as u64),
            None => SizeHint::default(),
        }
    }
}

impl Body {
    /// The same body, sent in turns where it is more than one of them and its end is known.
    pub(crate) fn paced(self, turns: Turns) -> Body {
        match self.size_hint().exact() {
            Some(bytes) if bytes > TURN_BYTES as u64 => {
                Body::Paced(Box::new(Paced { body: self, piece: Bytes::new(), turns, turn: None }))
            }
            _ => self,
        }
    }

    /// Whether this is a list that is made while it is sent.
    pub(crate) fn is_list(&self) -> bool {
        match self {
            Body::List(_) => true,
            Body::Paced(paced) => paced.body.is_list(),
            Body::Held(held) => held.body.is_list(),
            _ => false,
        }
    }

    /// Keeps `until_end` until the body is sent or dropped.
    pub fn held(body: Body, until_end: Box<dyn Any + Send>) -> Body {
        Body::Held(Box::new(Held { body, until_end: Some(until_end) }))
    }

    /// Hands over the objects of a list as they are stored; false if this is not such a list.
    pub(crate) fn take_apart(&mut self) -> bool {
        match self {
            Body::List(_) => {}
            Body::Held(held) => return held.body.take_apart(),
            // In-process clients have no other requests that would wait for a turn.
            Body::Paced(paced) => {
                *self = std::mem::replace(&mut paced.body, Body::empty());
                return self.take_apart();
            }
            _ => return false,
        }
        if let Body::List(list) = std::mem::replace(self, Body::empty()) {
            *self = Body::Pieces(list.pieces().into_iter());
        }
        true
    }

    /// A body without bytes.
    pub fn empty() -> Body {
        Body::Full(None)
    }

    /// The whole body, where it is there already.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Body::Full(bytes) => bytes.as_ref(),
            _ => None,
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Full(Some(Bytes::from(bytes)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Full(Some(bytes))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Body::Full(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty())),
            Body::List(list) => Poll::Ready(list.next_chunk()),
            Body::Stream(stream) => stream.poll_next(cx),
            Body::Pieces(pieces) => Poll::Ready(pieces.next()),
            Body::Paced(paced) => paced.poll_next(cx),
            Body::Held(held) => return held.poll_frame(cx),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Body::List(list) => list.is_done(),
            Body::Stream(_) => false,
            Body::Pieces(pieces) => pieces.len() == 0,
            Body::Paced(paced) => paced.is_done(),
            Body::Held(held) => held.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::List(list) => SizeHint::with_exact(list.left),
            Body::Stream(_) | Body::Pieces(_) => SizeHint::default(),
            Body::Paced(paced) => paced.size_hint(),
            Body::Held(held) => held.body.size_hint(),
        }
    }
}

impl Held {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = http_body::Body::poll_frame(Pin::new(&mut self.body), cx);
        // A body of known length is not polled after its last byte.
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.until_end = None;
        }
        frame
    }
}

/// A list: a head, the items' own bytes with commas between, a tail. Nothing is joined before it is sent.
pub struct ListBody {
    head: Option<Bytes>,
    items: Vec<Arc<Item>>,
    /// The next item to go out.
    next: usize,
    tail: Option<&'static [u8]>,
    left: u64,
}

impl ListBody {
    pub(crate) fn new(head: Vec<u8>, items: Vec<Arc<Item>>) -> ListBody {
        let tail: &'static [u8] = b"]}\n";
        let commas = items.len().saturating_sub(1);
        let bytes: usize = items.iter().map(|item| item.list_bytes().len() + 1).sum();
        let left = (head.len() + bytes + commas + tail.len()) as u64;
        ListBody { head: Some(Bytes::from(head)), items, next: 0, tail: Some(tail), left }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    /// A list without items, and the items, none of which is copied.
    fn pieces(self) -> Vec<Bytes> {
        let mut head = self.head.unwrap_or_default().to_vec();
        head.extend_from_slice(b"]}");
        let items = self.items.iter().map(|item| item.bytes.clone());
        std::iter::once(Bytes::from(head)).chain(items).collect()
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        if self.is_done() {
            return None;
        }
        let mut chunk = BytesMut::with_capacity((LIST_CHUNK_BYTES + 8192).min(self.left as usize));
        if let Some(head) = self.head.take() {
            chunk.extend_from_slice(&head);
        }
        while chunk.len() < LIST_CHUNK_BYTES {
            let Some(item) = self.items.get(self.next) else { break };
            chunk.extend_from_slice(if self.next == 0 { b"{" } else { b",{" });
            self.next += 1;
            chunk.extend_from_slice(item.list_bytes());
        }
        if self.next == self.items.len()
            && let Some(tail) = self.tail.take()
        {
            chunk.extend_from_slice(tail);
        }
        self.left = self.left.saturating_sub(chunk.len() as u64);
        Some(chunk.freeze())
    }

    /// The whole list at once, for responses that are compressed or re-encoded.
    pub(crate) fn collect(mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.left as usize);
        while let Some(chunk) = self.next_chunk() {
            all.extend_from_slice(&chunk);
        }
        all
    }
}

/// Where the bytes of a stream come from: each call waits for the next piece; None ends it.
pub(crate) trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Box<dyn Steps>)>> + Send>>;

/// A source behind a pointer: each step gives it back.
trait Steps: Send {
    fn step(self: Box<Self>) -> Step;
}

impl<S: Source> Steps for S {
    fn step(mut self: Box<Self>) -> Step {
        Box::pin(async move {
            let bytes = self.next().await?;
            Some((bytes, self as Box<dyn Steps>))
        })
    }
}

/// A stream that is polled only while the client reads: there is no queue.
pub struct StreamBody {
    step: Option<Step>,
}

impl StreamBody {
    pub(crate) fn new<S: Source>(source: S) -> StreamBody {
        StreamBody { step: Some(Box::new(source).step()) }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(current) = &mut self.step else { return Poll::Ready(None) };
        match current.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.step = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some((bytes, next))) => {
                self.step = Some(next.step());
                Poll::Ready(Some(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_as_long_as_it_says() {
        let item =
            |n: u64| Arc::new(Item::new("a", n, Bytes::from(format!("{{\"kind\":\"A\",\"metadata\":{{\"n\":{n}}}}}"))));
        let body = ListBody::new(b"{\"items\":[".to_vec(), vec![item(1), item(2)]);
        let left = body.left;
        let all = body.collect();
        assert_eq!(all, b"{\"items\":[{\"metadata\":{\"n\":1}},{\"metadata\":{\"n\":2}}]}\n");
        assert_eq!(left, all.len() as u64);
        assert_eq!(ListBody::new(b"[".to_vec(), vec![]).collect(), b"[]}\n");
    }

    #[tokio::test]
    async fn a_body_in_turns_is_the_same_body() {
        let all: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        let mut body = Body::from(all.clone()).paced(Turns::default());
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let mut sent = Vec::new();
        while !body.is_end_stream() {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let piece = frame.expect("a piece").expect("no error").into_data().expect("bytes");
            assert!(piece.len() <= TURN_BYTES);
            sent.extend_from_slice(&piece);
            assert_eq!(body.size_hint().exact(), Some((all.len() - sent.len()) as u64));
        }
        assert_eq!(sent, all);
        assert!(matches!(Body::from(vec![0; 100]).paced(Turns::default()), Body::Full(_)), "one turn is enough");
    }

    #[test]
    fn a_list_is_taken_apart_without_a_copy() {
        let long = format!(r#"{{"kind":"A","metadata":{{"name":"{}"}}}}"#, "a".repeat(2 * TURN_BYTES));
        let item = Arc::new(Item::new("a", 1, Bytes::from(long)));
        let list = ListBody::new(b"{\"items\":[".to_vec(), vec![item.clone()]);
        let mut body = Body::held(Body::List(list).paced(Turns::default()), Box::new(()));
        assert!(body.take_apart() && !Body::empty().take_apart());
        let Body::Held(held) = body else { panic!("it is held still") };
        let Body::Pieces(pieces) = held.body else { panic!("pieces") };
        let pieces: Vec<Bytes> = pieces.collect();
        assert_eq!(pieces, [Bytes::from_static(b"{\"items\":[]}"), item.bytes.clone()]);
        assert_eq!(pieces[1].as_ptr(), item.bytes.as_ptr());
    }
}
