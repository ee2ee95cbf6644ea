//! The OpenAPI documents: built on the first request, cached only compressed. For clients that do not accept gzip the
//! document is decompressed per request, which costs time but no permanent memory.

mod documents;
mod parts;

use ::openapi::{Encoding, v2, v3};
use api::json;
use api::status::Status;
use http::{HeaderValue, Method, header};

use crate::call::{HttpResponse, build_response};
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::negotiate;
use crate::routes::Routes;
pub(crate) use documents::Documents;
use documents::{Document, hash, hashes, unpack};

/// A year: a URL with a hash never changes its content.
const IMMUTABLE: &str = "public, immutable, max-age=31536000";

/// Serves /openapi/v2 and the paths below /openapi/v3.
pub(crate) async fn route(routes: &Routes, head: &RequestHead) -> Result<Option<HttpResponse>, Status> {
    match head.path.strip_prefix("/openapi/") {
        Some("v2") => get_v2(routes, head).await.map(Some),
        Some("v3" | "v3/") => get_index(routes, head).await.map(Some),
        Some(rest) => match rest.strip_prefix("v3/") {
            Some(name) => get_v3(routes, head, name).await,
            None => Ok(None),
        },
        None => Ok(None),
    }
}

fn check_method(head: &RequestHead) -> Result<(), Status> {
    if matches!(head.method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Status::method_not_allowed()) }
}

async fn get_v2(routes: &Routes, head: &RequestHead) -> Result<HttpResponse, Status> {
    check_method(head)?;
    let encoding = accepted(head, v2::PROTOBUF_NAMES)?;
    let document = parts::find(routes, encoding).await?;
    Ok(document_response(head, &document, content_type(encoding, v2::PROTOBUF)))
}

async fn get_index(routes: &Routes, head: &RequestHead) -> Result<HttpResponse, Status> {
    check_method(head)?;
    let hashes = hashes(routes).await?;
    let index = v3::index_of(hashes.iter().map(|(name, hash)| (name.clone(), hash.clone())));
    Ok(build_response(200, "application/json", json::encode(&index, None)))
}

async fn get_v3(routes: &Routes, head: &RequestHead, name: &str) -> Result<Option<HttpResponse>, Status> {
    check_method(head)?;
    let Some(hash) = hash(routes, name).await? else { return Ok(Some(not_found())) };
    let requested = head.query.get("hash");
    if !requested.is_empty() && requested != hash {
        return Ok(Some(redirect(name, &hash)));
    }
    let encoding = accepted(head, v3::PROTOBUF_NAMES)?;
    let document = documents::find(routes, name, hash, encoding).await?.ok_or_else(Status::no_resource)?;
    let mut response = document_response(head, &document, content_type(encoding, v3::PROTOBUF));
    if !requested.is_empty() {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE));
    }
    Ok(Some(response))
}

/// Upstream sends only this text.
fn not_found() -> HttpResponse {
    let mut response = build_response(404, "text/plain", Body::empty());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

/// Redirects the URL of an older version to the newest one.
fn redirect(name: &str, hash: &str) -> HttpResponse {
    let mut response = build_response(301, "text/plain; charset=utf-8", Vec::new());
    if let Ok(location) = HeaderValue::from_str(&format!("/openapi/v3/{name}?hash={hash}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// JSON or protobuf, by the first clause of the Accept header that means either.
fn accepted(head: &RequestHead, protobuf: &[&str]) -> Result<Encoding, Status> {
    let accept = head.header(header::ACCEPT).unwrap_or("").trim();
    if accept.is_empty() {
        return Ok(Encoding::Json);
    }
    let known = negotiate::names(accept).into_iter().find_map(|name| match name {
        "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
        name if protobuf.contains(&name) => Some(Encoding::Protobuf),
        _ => None,
    });
    let unknown = || Status::not_acceptable("only application/json and the protobuf form of OpenAPI are served here");
    known.ok_or_else(unknown)
}

fn content_type(encoding: Encoding, protobuf: &'static str) -> &'static str {
    match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => protobuf,
    }
}

fn document_response(head: &RequestHead, document: &Document, content_type: &'static str) -> HttpResponse {
    let etag = format!("\"{}\"", document.etag);
    let unchanged = head.header(header::IF_NONE_MATCH).is_some_and(|known| known.contains(&etag));
    let gzip = head.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let mut response = match unchanged {
        true => build_response(304, content_type, Body::empty()),
        false if gzip => build_response(200, content_type, document.gzip.clone()),
        false => build_response(200, content_type, unpack(&document.gzip)),
    };
    let headers = response.headers_mut();
    if gzip && !unchanged {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}
