//! The OpenAPI documents: made at the first asking, kept only compressed. Clients that take no gzip get
//! the document unpacked for them, which costs time and no memory that stays.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use ::openapi::{Api, Encoding, Texts, v2, v3};
use api::json;
use api::status::Status;
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use stdx::sync::Mutex;

use crate::call::{Answer, answer};
use crate::request::body::Body;
use crate::request::compress::gzip;
use crate::request::head::RequestHead;
use crate::request::negotiate;
use crate::routes::Routes;

/// The version that the documents say; the same as `/version`.
pub const VERSION: &str = concat!("v1.37.0+tiphys.", env!("CARGO_PKG_VERSION"));

/// A year: a URL with a hash never changes its content.
const IMMUTABLE: &str = "public, immutable, max-age=31536000";

/// The cached documents. Two concurrent requests may build a document twice; the second one is dropped.
#[derive(Default)]
pub(crate) struct Documents {
    kept: Mutex<BTreeMap<(String, bool), Arc<Document>>>,
    hashes: Mutex<Option<Arc<BTreeMap<String, String>>>>,
}

struct Document {
    gzip: Bytes,
    etag: String,
}

/// Descriptions of types and fields, from the crate that alone knows upstream's texts.
struct Descriptions(descriptions::Descriptions);

impl Texts for Descriptions {
    fn of_type(&self, ty: &str) -> Option<&str> {
        self.0.of_type(ty)
    }

    fn of_field(&self, ty: &str, field: &str) -> Option<&str> {
        self.0.of_field(ty, field)
    }
}

/// Serves /openapi/v2 and the paths below /openapi/v3.
pub(crate) async fn route(routes: &Routes, head: &RequestHead) -> Result<Option<Answer>, Status> {
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

async fn get_v2(routes: &Routes, head: &RequestHead) -> Result<Answer, Status> {
    check_method(head)?;
    let encoding = accepted(head, v2::PROTOBUF_NAMES)?;
    let document = find(routes, "", encoding).await?.ok_or_else(Status::no_resource)?;
    Ok(document_answer(head, &document, content_type(encoding, v2::PROTOBUF)))
}

async fn get_index(routes: &Routes, head: &RequestHead) -> Result<Answer, Status> {
    check_method(head)?;
    let hashes = hashes(routes).await?;
    let index = v3::index_of(hashes.iter().map(|(name, hash)| (name.clone(), hash.clone())));
    Ok(answer(200, "application/json", json::encode(&index, None)))
}

async fn get_v3(routes: &Routes, head: &RequestHead, name: &str) -> Result<Option<Answer>, Status> {
    check_method(head)?;
    let hashes = hashes(routes).await?;
    let Some(hash) = hashes.get(name) else { return Ok(Some(not_there())) };
    let asked = head.query.get("hash");
    if !asked.is_empty() && asked != hash {
        return Ok(Some(redirect(name, hash)));
    }
    let encoding = accepted(head, v3::PROTOBUF_NAMES)?;
    let document = find(routes, name, encoding).await?.ok_or_else(Status::no_resource)?;
    let mut response = document_answer(head, &document, content_type(encoding, v3::PROTOBUF));
    if !asked.is_empty() {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE));
    }
    Ok(Some(response))
}

/// Upstream sends nothing more than that.
fn not_there() -> Answer {
    let mut answer = answer(404, "text/plain", Body::empty());
    answer.headers_mut().remove(header::CONTENT_TYPE);
    answer
}

/// The URL of an older version leads to the newest one.
fn redirect(name: &str, hash: &str) -> Answer {
    let mut response = answer(301, "text/plain; charset=utf-8", Vec::new());
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

fn document_answer(head: &RequestHead, document: &Document, content_type: &'static str) -> Answer {
    let etag = format!("\"{}\"", document.etag);
    let unchanged = head.header(header::IF_NONE_MATCH).is_some_and(|known| known.contains(&etag));
    let gzip = head.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let mut response = match unchanged {
        true => answer(304, content_type, Body::empty()),
        false if gzip => answer(200, content_type, document.gzip.clone()),
        false => answer(200, content_type, unpack(&document.gzip)),
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

fn unpack(gzip: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The bytes are our own gzip; a failure would leave the body short and the client would say so.
    let _ = flate2::read::GzDecoder::new(gzip).read_to_end(&mut out);
    out
}

/// The document of a name ("" for v2), made where it is not kept yet.
async fn find(routes: &Routes, name: &str, encoding: Encoding) -> Result<Option<Arc<Document>>, Status> {
    let key = (name.to_string(), encoding == Encoding::Protobuf);
    if let Some(document) = routes.openapi.kept.lock().get(&key) {
        return Ok(Some(document.clone()));
    }
    let name = name.to_string();
    let made = tokio::task::spawn_blocking(move || build(&name, encoding)).await.map_err(Status::internal)?;
    let Some(document) = made.map(Arc::new) else { return Ok(None) };
    routes.openapi.kept.lock().insert(key, document.clone());
    Ok(Some(document))
}

fn build(name: &str, encoding: Encoding) -> Option<Document> {
    let texts = Descriptions(descriptions::descriptions());
    let api = Api { version: VERSION, kinds: kinds::served(), texts: &texts, extras: &[] };
    let bytes = if name.is_empty() { v2::document(&api, encoding) } else { v3::document(&api, name, encoding)? };
    Some(Document { etag: ::openapi::etag(&bytes), gzip: Bytes::from(gzip(&bytes)) })
}

/// The hash of every v3 document, by name.
async fn hashes(routes: &Routes) -> Result<Arc<BTreeMap<String, String>>, Status> {
    if let Some(hashes) = &*routes.openapi.hashes.lock() {
        return Ok(hashes.clone());
    }
    let hashes = Arc::new(tokio::task::spawn_blocking(compute_hashes).await.map_err(Status::internal)?);
    *routes.openapi.hashes.lock() = Some(hashes.clone());
    Ok(hashes)
}

fn compute_hashes() -> BTreeMap<String, String> {
    let api = Api { version: VERSION, kinds: kinds::served(), texts: &::openapi::NoTexts, extras: &[] };
    let index = v3::index(&api);
    let hash = |url: &str| url.split_once("?hash=").map(|(_, hash)| hash.to_string()).unwrap_or_default();
    index.map("paths").iter().map(|(name, path)| (name.to_string(), hash(path.str("serverRelativeURL")))).collect()
}
