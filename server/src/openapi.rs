//! The OpenAPI documents: built when they are first asked for, kept compressed alone.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use api::json;
use api::status::Status;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderValue, Method, header};
use openapi::{Api, Encoding, Texts, v2, v3};

use crate::Server;
use crate::call::{Answer, Call, answer};
use crate::http::body::Body;
use crate::http::compress::gzip;

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V2_PROTOBUF_SHORT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
const V3_PROTOBUF_SHORT: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// A document as it is kept.
struct Kept {
    gzip: Bytes,
    etag: String,
}

/// Documents by name: `v2`, `v3` (the index), `v3/apis/apps/v1`, each with its encoding.
#[derive(Default)]
pub struct Documents {
    kept: Mutex<HashMap<(String, bool), Arc<Kept>>>,
}

/// Descriptions live only while a document is built.
struct WireTexts(wire::Descriptions);

impl Texts for WireTexts {
    fn of_type(&self, ty: &str) -> Option<&str> {
        self.0.of_type(ty)
    }

    fn of_field(&self, ty: &str, field: &str) -> Option<&str> {
        self.0.of_field(ty, field)
    }
}

impl Documents {
    fn get(&self, name: &str, protobuf: bool) -> Option<Arc<Kept>> {
        let key = (name.to_string(), protobuf);
        // The lock is held while building: two who ask at once build once.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = kept.get(&key) {
            return Some(document.clone());
        }
        let bytes = build(name, if protobuf { Encoding::Protobuf } else { Encoding::Json })?;
        let document = Arc::new(Kept { etag: openapi::etag(&bytes), gzip: Bytes::from(gzip(&bytes)) });
        kept.insert(key, document.clone());
        Some(document)
    }
}

fn build(name: &str, encoding: Encoding) -> Option<Vec<u8>> {
    let texts = WireTexts(wire::descriptions());
    let api = Api { version: "v1.37.0", kinds: kinds::ALL, texts: &texts, extras: &[] };
    match name {
        "v2" => Some(v2::document(&api, encoding)),
        "v3" => Some(json::encode(&v3::index(&api), None)),
        name => v3::document(&api, name.strip_prefix("v3/")?, encoding),
    }
}

/// Answers /openapi/v2, /openapi/v3 and what is below it.
pub async fn route(server: &Arc<Server>, call: &Call) -> Result<Option<Answer>, Status> {
    let Some(rest) = call.path.strip_prefix("/openapi/") else { return Ok(None) };
    let name = rest.trim_end_matches('/').to_string();
    let v3 = name == "v3" || name.starts_with("v3/");
    if !v3 && name != "v2" {
        return Ok(None);
    }
    if !matches!(call.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let protobuf = wants_protobuf(call) && name != "v3";
    let shared = server.clone();
    let built = tokio::task::spawn_blocking(move || shared.openapi.get(&name, protobuf)).await;
    match built.map_err(Status::internal)? {
        Some(document) => Ok(Some(document_answer(call, &document, content_type(v3, protobuf)))),
        None => Ok(Some(not_there())),
    }
}

fn not_there() -> Answer {
    let mut answer = answer(404, "text/plain", Body::empty());
    answer.headers_mut().remove(header::CONTENT_TYPE);
    answer
}

fn wants_protobuf(call: &Call) -> bool {
    let accept = call.header(header::ACCEPT).unwrap_or("");
    let first = accept.split(',').next().unwrap_or("").split(';').next().unwrap_or("").trim();
    [V2_PROTOBUF, V2_PROTOBUF_SHORT, V3_PROTOBUF, V3_PROTOBUF_SHORT].contains(&first)
}

fn content_type(v3: bool, protobuf: bool) -> &'static str {
    match (v3, protobuf) {
        (_, false) => "application/json",
        (false, true) => V2_PROTOBUF_SHORT,
        (true, true) => V3_PROTOBUF_SHORT,
    }
}

fn document_answer(call: &Call, document: &Kept, content_type: &'static str) -> Answer {
    let etag = format!("\"{}\"", document.etag);
    let same = call.header(header::IF_NONE_MATCH).is_some_and(|given| given == etag);
    let zipped = call.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let mut response = match (same, zipped) {
        (true, _) => answer(304, content_type, Body::empty()),
        (false, true) => answer(200, content_type, document.gzip.clone()),
        (false, false) => answer(200, content_type, unzip(&document.gzip)),
    };
    let headers = response.headers_mut();
    if zipped && !same {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    response
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // What we have compressed ourselves decompresses.
    let _ = GzDecoder::new(bytes).read_to_end(&mut out);
    out
}
