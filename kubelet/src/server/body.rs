//! Response bodies: whole, or streamed.

use std::io;

use api::Tree;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::ServerResponse;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body from a channel; the sender fails once the client does not read any more.
pub(crate) fn stream(pieces: mpsc::Receiver<Bytes>) -> Body {
    StreamBody::new(ReceiverStream::new(pieces).map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
}

/// The response of another server.
pub(crate) fn behind(response: Response<Incoming>) -> ServerResponse {
    response.map(|body| body.map_err(io::Error::other).boxed_unsync())
}

pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: Body) -> ServerResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> ServerResponse {
    respond(code, "text/plain; charset=utf-8", whole(text))
}

pub(crate) fn json(tree: &Tree) -> ServerResponse {
    respond(StatusCode::OK, "application/json", whole(api::json::encode(tree, None)))
}

pub(crate) fn metrics(text: String) -> ServerResponse {
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", whole(text))
}
