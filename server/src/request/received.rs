//! The bodies of requests: from a socket as they come, or whole from this process.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

pub(crate) enum Received {
    Socket(Incoming),
    Whole(Option<Bytes>),
}

impl From<Incoming> for Received {
    fn from(body: Incoming) -> Received {
        Received::Socket(body)
    }
}

impl From<Bytes> for Received {
    fn from(body: Bytes) -> Received {
        Received::Whole(Some(body).filter(|body| !body.is_empty()))
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Received::Socket(body) => Pin::new(body).poll_frame(cx),
            Received::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Received::Socket(body) => body.is_end_stream(),
            Received::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Received::Socket(body) => body.size_hint(),
            Received::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
