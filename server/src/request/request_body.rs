//! The bodies of requests: streamed from a socket, or whole from this process.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

pub(crate) enum RequestBody {
    Socket(Incoming),
    Whole(Option<Bytes>),
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> RequestBody {
        RequestBody::Socket(body)
    }
}

impl From<Bytes> for RequestBody {
    fn from(body: Bytes) -> RequestBody {
        RequestBody::Whole(Some(body).filter(|body| !body.is_empty()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestBody::Socket(body) => Pin::new(body).poll_frame(cx),
            RequestBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Socket(body) => body.is_end_stream(),
            RequestBody::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Socket(body) => body.size_hint(),
            RequestBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
