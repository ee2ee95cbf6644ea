//! The transport of requests to the server.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::Result;

/// A streamed response body.
pub struct Body {
    frames: Pin<Box<dyn http_body::Body<Data = Bytes, Error = crate::Error> + Send>>,
    /// Whether each object is a separate frame.
    pub(crate) pieces: bool,
}

/// A request extension that allows the response in object frames: for a list its metadata and each object, for a
/// watch the type of each event and its object. The objects are shared, not copied.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFrames;

/// A request extension: only the status code of a successful response is needed.
#[derive(Debug, Clone, Copy)]
pub struct DiscardBody;

/// The frame type of a complete watch line.
pub(crate) const LINE: &[u8] = b"LINE";

/// A response in progress.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>>> + Send + 'a>>;

/// Sends requests, over HTTPS or in process.
pub trait Transport: Send + Sync {
    /// Sends a request and returns its response.
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_>;
}

/// Allows wrapping the body.
impl http_body::Body for Body {
    type Data = Bytes;
    type Error = crate::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        self.frames.as_mut().poll_frame(context)
    }
}

impl Body {
    /// A body of arbitrary frames.
    pub fn new<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        Body { frames: Box::pin(body.map_err(|error| crate::Error::Transport(error.to_string()))), pieces: false }
    }

    /// Marks a body with object frames, from an in-process server.
    pub fn with_object_frames(self) -> Body {
        Body { pieces: true, ..self }
    }

    /// Wraps the body, keeping its frames.
    pub fn wrap<B>(self, wrap: impl FnOnce(Body) -> B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let pieces = self.pieces;
        Body { pieces, ..Body::new(wrap(self)) }
    }

    /// The next bytes; None at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            match self.frames.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads the body to its end.
    pub async fn whole(mut self) -> Result<Bytes> {
        let mut all = Vec::new();
        while let Some(data) = self.next().await {
            all.extend_from_slice(&data?);
        }
        Ok(Bytes::from(all))
    }
}
