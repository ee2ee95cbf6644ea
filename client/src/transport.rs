//! The one door to the server: whoever can carry a request there and an answer back.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::Result;

/// An answer's body, as it comes.
pub struct Body(Pin<Box<dyn http_body::Body<Data = Bytes, Error = crate::Error> + Send>>);

pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>>> + Send + 'a>>;

pub trait Transport: Send + Sync {
    fn send(&self, request: Request<Bytes>) -> Sending<'_>;
}

/// So that something can stand before it.
impl http_body::Body for Body {
    type Data = Bytes;
    type Error = crate::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        self.0.as_mut().poll_frame(context)
    }
}

impl Body {
    pub fn new<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        Body(Box::pin(body.map_err(|error| crate::Error::Transport(error.to_string()))))
    }

    /// The next bytes; None at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            match self.0.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    pub async fn whole(mut self) -> Result<Bytes> {
        let mut all = Vec::new();
        while let Some(data) = self.next().await {
            all.extend_from_slice(&data?);
        }
        Ok(Bytes::from(all))
    }
}
