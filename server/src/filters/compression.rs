//! gzip for large responses, to clients that accept it and are on another machine.

use bytes::Bytes;
use http::{HeaderValue, header};

use crate::Server;
use crate::call::{Call, HttpResponse};
use crate::request::body::Body;
use crate::request::compress::gzip;

/// Compressing smaller responses is not worthwhile.
const MIN_BYTES: usize = 128 << 10;

/// Compresses a complete response. The loopback is faster than any compressor.
pub(super) fn compress(_: &Server, call: &mut Call, response: &mut HttpResponse) {
    let requested = call.head.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    if !requested
        || call.peer.address.ip().to_canonical().is_loopback()
        || response.headers().contains_key(header::CONTENT_ENCODING)
    {
        return;
    }
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let whole = match body {
        Body::Full(Some(bytes)) => bytes,
        Body::List(list) => Bytes::from(list.collect()),
        other => {
            *response.body_mut() = other;
            return;
        }
    };
    if whole.len() < MIN_BYTES {
        *response.body_mut() = Body::from(whole);
        return;
    }
    *response.body_mut() = Body::from(gzip(&whole));
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}
