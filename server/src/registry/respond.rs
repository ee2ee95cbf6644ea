//! Responses with objects: media type, representation, and the stored bytes themselves where possible.

use api::schema::Type;
use api::status::Status;
use api::{Tree, json};
use bytes::Bytes;

use crate::call::{Call, HttpResponse, build_response};
use crate::registry::shape::{self, IncludeObject, RepresentationOptions};
use crate::registry::write::Outcome;
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::negotiate::{Accepted, Media, Representation};
use crate::storage::resource::Resource;

/// The media type and shape that this call accepts.
pub(crate) fn accepted(head: &RequestHead) -> Result<Accepted, Status> {
    let mut accepted = crate::request::negotiate::accept_typed(head.header(http::header::ACCEPT), true, !head.untyped)?;
    accepted.pretty |= pretty(head);
    Ok(accepted)
}

fn pretty(head: &RequestHead) -> bool {
    if head.query.has("pretty") {
        return head.query.flag("pretty");
    }
    let agent = head.header(http::header::USER_AGENT).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

pub(crate) fn shaping(head: &RequestHead, accepted: Accepted) -> Result<RepresentationOptions, Status> {
    let include = match accepted.shape {
        Representation::Table(_) => IncludeObject::parse(head.query.get("includeObject"))?,
        _ => IncludeObject::Metadata,
    };
    Ok(RepresentationOptions { shape: accepted.shape, include, now: head.now })
}

/// The response with one object.
pub(crate) fn outcome(call: &Call, resource: &Resource, code: u16, outcome: &Outcome) -> Result<HttpResponse, Status> {
    if is_unread(call) {
        return Ok(build_response(code, Media::Json.name(), Body::empty()));
    }
    let accepted = accepted(&call.head)?;
    if let Outcome::Stored(item) = outcome
        && accepted == Accepted::JSON
        && resource.serves_bytes_of(item)
    {
        return Ok(build_response(code, Media::Json.name(), with_newline(&item.bytes)));
    }
    tree(&call.head, resource, code, outcome.tree(resource))
}

/// The audit log may record the response.
fn is_unread(call: &Call) -> bool {
    call.delivery.unread && call.audit.trail.is_none()
}

/// Upstream's encoder ends a document with a line end; the stored bytes are sent unchanged.
fn with_newline(bytes: &Bytes) -> Body {
    Body::from(bytes.clone())
}

/// The response with one object of the resource, from a tree.
pub(crate) fn tree(head: &RequestHead, resource: &Resource, code: u16, object: Tree) -> Result<HttpResponse, Status> {
    let accepted = accepted(head)?;
    let shaped = shape::object(&resource.kind, object, shaping(head, accepted)?)?;
    Ok(encoded(code, &shaped, accepted))
}

/// A tree that contains its kind.
pub(crate) fn encoded(code: u16, tree: &Tree, accepted: Accepted) -> HttpResponse {
    let (group, version) = crate::storage::resource::split_api_version(tree.str("apiVersion"));
    let ty = api::schema::type_of(&group, &version, tree.str("kind"));
    encoded_as(code, tree, ty, accepted)
}

/// Encodes a tree of a known type, which defines the order of its keys.
pub(crate) fn encoded_as(code: u16, tree: &Tree, ty: Option<&'static Type>, accepted: Accepted) -> HttpResponse {
    match accepted.media {
        Media::Json if accepted.pretty => build_response(code, accepted.media.name(), json::encode_pretty(tree, ty)),
        Media::Json => {
            let mut bytes = json::encode(tree, ty);
            bytes.push(b'\n');
            build_response(code, accepted.media.name(), bytes)
        }
        Media::Yaml => build_response(code, accepted.media.name(), api::yaml::encode(tree)),
        Media::Protobuf => {
            let (group, version) = crate::storage::resource::split_api_version(tree.str("apiVersion"));
            let bytes = crate::request::codec::protobuf(tree, &group, &version, tree.str("kind"));
            build_response(code, accepted.media.name(), bytes)
        }
    }
}
