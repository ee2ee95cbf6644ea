//! Passes a request on to an extension API server, and its response back.

use std::sync::Arc;

use api::query::{encode_path, encode_query};
use api::status::Status;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};

use super::{Aggregator, ApiService};
use crate::call::{Call, HttpResponse, text};
use crate::outbound::user_headers::set_user;
use crate::registry::subresources::proxy::forward::{self, RemoteBody, SendError, drop_hop_headers};
use crate::registry::subresources::proxy::target::Target;
use crate::request::info::percent_decode;
use crate::request::request_body::RequestBody;

/// Serves a request of a group version that belongs to an extension API server.
pub(crate) async fn forward(
    aggregator: &Aggregator,
    service: &Arc<ApiService>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    if !service.is_available {
        return Ok(unavailable());
    }
    let resolved = aggregator.backend(service).and_then(|backend| {
        let target = backend.target(aggregator, service)?;
        Ok((backend, target))
    });
    let (backend, target) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => {
            tracing::warn!(apiservice = service.name, %error, "extension API server cannot be called");
            return Ok(unavailable());
        }
    };
    let upgrade = call.content.upgrade.take();
    let request = outbound(aggregator, call, &target, upgrade.is_some())?;
    match upgrade {
        None => Ok(backend.send(&target, request).await.map_or_else(|error| unreachable(&error), inbound)),
        Some(client) => match forward::send(&target.with_http1(), request).await {
            Ok(response) if response.status() == http::StatusCode::SWITCHING_PROTOCOLS => {
                Ok(forward::switch(response, client))
            }
            Ok(response) => Ok(inbound(response)),
            Err(error) => Ok(unreachable(&error)),
        },
    }
}

fn unavailable() -> HttpResponse {
    text(503, "service unavailable\n")
}

fn unreachable(error: &SendError) -> HttpResponse {
    text(503, &format!("error trying to reach service: {error}\n"))
}

fn outbound(
    aggregator: &Aggregator,
    call: &mut Call,
    target: &Target,
    is_upgrade: bool,
) -> Result<Request<RequestBody>, Status> {
    let user = call.caller.user.clone().ok_or_else(|| Status::internal("missing user"))?;
    let body = call.content.body.take().ok_or_else(|| Status::internal("the body has been read already"))?;
    let path = percent_decode(&call.head.path);
    let mut request = Request::new(body);
    *request.method_mut() = call.head.method.clone();
    *request.uri_mut() = uri(&path, &call.head.raw_query)?;
    let mut headers = call.head.headers.clone();
    let protocol = headers.get(header::UPGRADE).cloned().filter(|_| is_upgrade);
    drop_hop_headers(&mut headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    let host = header_value(&target.authority())?;
    headers.insert("audit-id", call.audit.id.clone());
    headers.insert("x-forwarded-for", header_value(&forward::forwarded_for(&headers, call.peer.address.ip()))?);
    headers.insert("x-forwarded-host", host.clone());
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    headers.insert("x-forwarded-uri", header_value(&encode_path(path.as_bytes()))?);
    headers.insert(header::HOST, host);
    set_user(&mut headers, &user, &aggregator.trusted_headers).map_err(Status::internal)?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn header_value(text: &str) -> Result<HeaderValue, Status> {
    HeaderValue::from_str(text).map_err(|error| Status::bad_request(error.to_string()))
}

/// The path as Go writes it, and the query with its keys in order.
fn uri(path: &str, raw_query: &str) -> Result<Uri, Status> {
    let path = encode_path(path.as_bytes());
    let text = if raw_query.is_empty() { path } else { format!("{path}?{}", sorted_query(raw_query)) };
    text.parse().map_err(|error: http::uri::InvalidUri| Status::bad_request(error.to_string()))
}

fn sorted_query(raw: &str) -> String {
    let decode = |text: &str| percent_decode(&text.replace('+', " ")).into_owned();
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(key), decode(value))
    };
    let mut pairs: Vec<(String, String)> = raw.split('&').filter(|part| !part.is_empty()).map(pair).collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
        .iter()
        .map(|(key, value)| format!("{}={}", encode_query(key), encode_query(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// A redirect could lead clients, and with them their credentials, to any address.
fn inbound<B: RemoteBody>(mut response: Response<B>) -> HttpResponse {
    if response.status().is_redirection() && has_location(response.headers()) {
        return text(502, "the backend attempted to redirect this request, which is not permitted");
    }
    drop_hop_headers(response.headers_mut());
    forward::streamed(response)
}

fn has_location(headers: &HeaderMap) -> bool {
    headers.get(header::LOCATION).is_some_and(|location| !location.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_written_as_go_does() {
        let check = |path: &str, query: &str, want: &str| {
            let path = percent_decode(path);
            assert_eq!(uri(&path, query).expect("a URI").to_string(), want);
        };
        check("/apis/x/v1/echo", "", "/apis/x/v1/echo");
        check("/apis/x/v1/echo", "a=b&c=%20d", "/apis/x/v1/echo?a=b&c=+d");
        check("/apis/x/v1/echo", "again", "/apis/x/v1/echo?again=");
        check("/apis/x/v1/echo", "b=2&a=1&b=1", "/apis/x/v1/echo?a=1&b=2&b=1");
        check("/apis/x/v1/echo/sub/path%2Fx", "", "/apis/x/v1/echo/sub/path/x");
        check("/apis/x/v1/a%20b%3Fc", "", "/apis/x/v1/a%20b%3Fc");
        check("/apis/x/v1/a", "x=%26%3D%2B", "/apis/x/v1/a?x=%26%3D%2B");
    }
}
