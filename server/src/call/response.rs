//! The response to a request.

use api::status::Status;
use api::{Tree, json};
use http::{HeaderValue, Response, StatusCode, header};

use crate::request::body::Body;
use crate::request::negotiate::{Accepted, Media};

pub(crate) type HttpResponse = Response<Body>;

/// A response with a complete body.
pub(crate) fn build_response(code: u16, content_type: &'static str, body: impl Into<Body>) -> HttpResponse {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn text(code: u16, body: &str) -> HttpResponse {
    build_response(code, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

/// A tree that is not a stored object, as JSON.
pub(crate) fn json_response(code: u16, tree: &Tree) -> HttpResponse {
    let mut bytes = json::encode(tree, api::schema::type_of("", "v1", tree.str("kind")));
    bytes.push(b'\n');
    build_response(code, "application/json", bytes)
}

/// Converts every error to HTTP.
pub(crate) fn status_response(status: &Status, accepted: Accepted) -> HttpResponse {
    let tree = status.to_tree();
    let mut response = match accepted.media {
        Media::Protobuf => {
            let bytes = crate::request::codec::protobuf(&tree, "", "v1", "Status");
            build_response(status.code, "application/vnd.kubernetes.protobuf", bytes)
        }
        Media::Yaml => build_response(status.code, "application/yaml", api::yaml::encode(&tree)),
        Media::Json => json_response(status.code, &tree),
    };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// `Warning: 299 - "text"`, as RFC 7234 and upstream write it.
pub(crate) fn warning_header(text: &str) -> Option<HeaderValue> {
    let mut quoted = String::with_capacity(text.len() + 10);
    quoted.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    HeaderValue::from_bytes(quoted.as_bytes()).ok()
}
