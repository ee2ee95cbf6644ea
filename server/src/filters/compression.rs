//! gzip for large responses, to clients that accept it and are on another machine.

use bytes::Bytes;
use http::{HeaderValue, header};

use crate::Server;
use crate::call::{Answer, Call};
use crate::request::body::Body;
use crate::request::compress::gzip;

/// Compressing smaller responses is not worthwhile.
const MIN_BYTES: usize = 128 << 10;

/// Compresses a complete response. The loopback is faster than any compressor.
pub(super) fn compress(_: &Server, call: &mut Call, answer: &mut Answer) {
    let asked = call.head.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    if !asked
        || call.peer.address.ip().to_canonical().is_loopback()
        || answer.headers().contains_key(header::CONTENT_ENCODING)
    {
        return;
    }
    let body = std::mem::replace(answer.body_mut(), Body::empty());
    let whole = match body {
        Body::Full(Some(bytes)) => bytes,
        Body::List(list) => Bytes::from(list.collect()),
        other => {
            *answer.body_mut() = other;
            return;
        }
    };
    if whole.len() < MIN_BYTES {
        *answer.body_mut() = Body::from(whole);
        return;
    }
    *answer.body_mut() = Body::from(gzip(&whole));
    answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}
