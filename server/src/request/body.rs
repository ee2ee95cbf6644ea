//! The bodies of responses: complete, a list in chunks, or a stream.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};

use crate::request::cpu_permits::CpuPermits;
use crate::storage::cache::Item;

/// Watches are written in pieces of about this size.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// A list ends: larger chunks cost fewer wake-ups.
const LIST_CHUNK_BYTES: usize = 128 << 10;

/// The body of a response: bytes, a list that is encoded while it is sent, or a stream.
pub enum Body {
    Full(Option<Bytes>),
    List(ListBody),
    Stream(StreamBody),
    /// A list for this process: its head, then each stored object.
    Frames(std::vec::IntoIter<Bytes>),
    /// Another body, sent in turns with other bodies.
    Paced(Box<PacedBody>),
    /// Another body, with a guard that is held until its end: seats, or the last audit event.
    Guarded(Box<GuardedBody>),
}

/// A body with a value that is dropped at its end.
pub struct GuardedBody {
    body: Body,
    /// Dropped with the body, or at its last byte.
    until_end: Option<Box<dyn Any + Send>>,
}

/// The bytes that a flow which crowds its level sends in a turn: two TLS records.
const TURN_BYTES: usize = 32 << 10;

/// A body that is sent in turns with other bodies.
pub struct PacedBody {
    body: Body,
    /// The bytes of the body that are not sent yet.
    piece: Bytes,
    turns: CpuPermits,
    /// The first piece is sent in the turn that produced it.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl PacedBody {
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
    /// Sends the body in turns, if it is larger than one turn and its end is known.
    pub(crate) fn paced(self, turns: CpuPermits) -> Body {
        match self.size_hint().exact() {
            Some(bytes) if bytes > TURN_BYTES as u64 => {
                Body::Paced(Box::new(PacedBody { body: self, piece: Bytes::new(), turns, turn: None }))
            }
            _ => self,
        }
    }

    /// Whether this is a list that is built while it is sent.
    pub(crate) fn is_list(&self) -> bool {
        match self {
            Body::List(_) => true,
            Body::Paced(paced) => paced.body.is_list(),
            Body::Guarded(held) => held.body.is_list(),
            _ => false,
        }
    }

    /// Keeps `until_end` until the body is sent or dropped.
    pub fn held(body: Body, until_end: Box<dyn Any + Send>) -> Body {
        Body::Guarded(Box::new(GuardedBody { body, until_end: Some(until_end) }))
    }

    /// Switches a list to its stored objects; false if this is not such a list.
    pub(crate) fn take_items(&mut self) -> bool {
        match self {
            Body::List(_) => {}
            Body::Guarded(held) => return held.body.take_items(),
            // In-process clients have no other requests that would wait for a turn.
            Body::Paced(paced) => {
                *self = std::mem::replace(&mut paced.body, Body::empty());
                return self.take_items();
            }
            _ => return false,
        }
        if let Body::List(list) = std::mem::replace(self, Body::empty()) {
            *self = Body::Frames(list.pieces().into_iter());
        }
        true
    }

    /// A body without bytes.
    pub fn empty() -> Body {
        Body::Full(None)
    }

    /// The whole body, if it is already complete.
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
            Body::Frames(pieces) => Poll::Ready(pieces.next()),
            Body::Paced(paced) => paced.poll_next(cx),
            Body::Guarded(held) => return held.poll_frame(cx),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Body::List(list) => list.is_done(),
            Body::Stream(_) => false,
            Body::Frames(pieces) => pieces.len() == 0,
            Body::Paced(paced) => paced.is_done(),
            Body::Guarded(held) => held.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::List(list) => SizeHint::with_exact(list.left),
            Body::Stream(_) | Body::Frames(_) => SizeHint::default(),
            Body::Paced(paced) => paced.size_hint(),
            Body::Guarded(held) => held.body.size_hint(),
        }
    }
}

impl GuardedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = http_body::Body::poll_frame(Pin::new(&mut self.body), cx);
        // A body of known length is not polled after its last byte.
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.until_end = None;
        }
        frame
    }
}

/// A list: a head, the items' own bytes with commas between, a tail. The parts are not joined before they are sent.
pub struct ListBody {
    head: Option<Bytes>,
    items: Vec<Arc<Item>>,
    /// Whether items repeat their kind, as in lists without a type.
    whole: bool,
    /// The next item to go out.
    next: usize,
    tail: Option<Bytes>,
    left: u64,
}

impl ListBody {
    /// A list of a built-in kind: what follows its items closes it.
    pub(crate) fn new(head: Vec<u8>, items: Vec<Arc<Item>>) -> ListBody {
        let bytes = items.iter().map(|item| item.list_bytes().len() + 1).sum();
        ListBody::assemble(head, items, false, bytes, Bytes::from_static(b"]}\n"))
    }

    /// A list of custom resources: its keys are sorted, and some follow the items.
    pub(crate) fn from_items(head: Vec<u8>, items: Vec<Arc<Item>>, tail: Vec<u8>) -> ListBody {
        let bytes = items.iter().map(|item| item.bytes.len()).sum();
        ListBody::assemble(head, items, true, bytes, Bytes::from(tail))
    }

    fn assemble(head: Vec<u8>, items: Vec<Arc<Item>>, whole: bool, item_bytes: usize, tail: Bytes) -> ListBody {
        let commas = items.len().saturating_sub(1);
        let left = (head.len() + item_bytes + commas + tail.len()) as u64;
        ListBody { head: Some(Bytes::from(head)), items, whole, next: 0, tail: Some(tail), left }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    /// A list without items, and the items, none of which is copied.
    fn pieces(self) -> Vec<Bytes> {
        let mut head = self.head.unwrap_or_default().to_vec();
        head.extend_from_slice(self.tail.unwrap_or_default().trim_ascii_end());
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
            if self.next > 0 {
                chunk.extend_from_slice(b",");
            }
            self.next += 1;
            if self.whole {
                chunk.extend_from_slice(&item.bytes);
            } else {
                chunk.extend_from_slice(b"{");
                chunk.extend_from_slice(item.list_bytes());
            }
        }
        if self.next == self.items.len()
            && let Some(tail) = self.tail.take()
        {
            chunk.extend_from_slice(&tail);
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

/// The source of a stream's bytes: each call waits for the next piece; None ends it.
pub(crate) trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Box<dyn Steps>)>> + Send>>;

/// A boxed source: each step returns it.
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
    fn list_length_matches_content_length() {
        let item =
            |n: u64| Arc::new(Item::new("a", n, Bytes::from(format!("{{\"kind\":\"A\",\"metadata\":{{\"n\":{n}}}}}"))));
        let body = ListBody::new(b"{\"items\":[".to_vec(), vec![item(1), item(2)]);
        let left = body.left;
        let all = body.collect();
        assert_eq!(all, b"{\"items\":[{\"metadata\":{\"n\":1}},{\"metadata\":{\"n\":2}}]}\n");
        assert_eq!(left, all.len() as u64);
        assert_eq!(ListBody::new(b"[".to_vec(), vec![]).collect(), b"[]}\n");
    }

    #[test]
    fn whole_items_repeat_their_kind() {
        let item =
            |n: u64| Arc::new(Item::new("a", n, Bytes::from(format!(r#"{{"kind":"A","metadata":{{"n":{n}}}}}"#))));
        let list = || {
            let tail = b"],\"kind\":\"AList\"}\n".to_vec();
            ListBody::from_items(b"{\"items\":[".to_vec(), vec![item(1), item(2)], tail)
        };
        let (left, all) = (list().left, list().collect());
        let items = br#"{"items":[{"kind":"A","metadata":{"n":1}},{"kind":"A","metadata":{"n":2}}],"kind":"AList"}"#;
        assert_eq!((left, all.trim_ascii_end()), (all.len() as u64, &items[..]));
        assert_eq!(list().pieces()[0], Bytes::from_static(br#"{"items":[],"kind":"AList"}"#));
    }

    #[tokio::test]
    async fn pacing_does_not_change_the_body() {
        let all: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        let mut body = Body::from(all.clone()).paced(CpuPermits::default());
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
        assert!(matches!(Body::from(vec![0; 100]).paced(CpuPermits::default()), Body::Full(_)), "one turn is enough");
    }

    #[test]
    fn list_frames_are_not_copied() {
        let long = format!(r#"{{"kind":"A","metadata":{{"name":"{}"}}}}"#, "a".repeat(2 * TURN_BYTES));
        let item = Arc::new(Item::new("a", 1, Bytes::from(long)));
        let list = ListBody::new(b"{\"items\":[".to_vec(), vec![item.clone()]);
        let mut body = Body::held(Body::List(list).paced(CpuPermits::default()), Box::new(()));
        assert!(body.take_items() && !Body::empty().take_items());
        let Body::Guarded(held) = body else { panic!("it is held still") };
        let Body::Frames(pieces) = held.body else { panic!("pieces") };
        let pieces: Vec<Bytes> = pieces.collect();
        assert_eq!(pieces, [Bytes::from_static(b"{\"items\":[]}"), item.bytes.clone()]);
        assert_eq!(pieces[1].as_ptr(), item.bytes.as_ptr());
    }
}
