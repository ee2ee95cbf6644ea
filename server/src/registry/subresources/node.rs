//! Requests to a node's kubelet: streamed logs, and connections that are passed on.

use api::status::{Details, Status};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use streaming::Timeouts;
use streaming::relay::{RelayMode, RelayResponse, StreamRequest, is_upgrade, relay};

pub(crate) use super::proxy::forward::SendError;
use super::proxy::forward::{self, streamed};
use super::proxy::target::Target;
use crate::call::{Call, HttpResponse};
use crate::outbound::kubelets::{Kubelets, PREFERRED, TIMEOUT};
use crate::registry::Registry;
use crate::request::body::Body;
use crate::request::head::RequestHead;

/// The limit for the text of a rejection.
const MAX_REFUSAL: usize = 50_000;

/// A node's kubelet.
pub(crate) struct Kubelet {
    pub target: Target,
    takes_websockets: bool,
}

/// `resource` is the resource in the NotFound error of a missing node.
pub(crate) async fn kubelet(registry: &Registry, node: &str, resource: &str) -> Result<Kubelet, Status> {
    find(registry, node, resource, false).await
}

async fn find(registry: &Registry, node: &str, resource: &str, unverified: bool) -> Result<Kubelet, Status> {
    let object = registry.storage.object("minions", node).ok_or_else(|| Status::not_found("", resource, node))?;
    let (kubelet, timeout) = match &registry.config.kubelets {
        Some(kubelets) => (kubelets.kubelet(&object).await?, kubelets.timeout),
        None => (unverified_kubelets()?.kubelet(&object).await?, TIMEOUT),
    };
    let tls = if unverified { kubelet.unverified } else { kubelet.tls };
    let target = Target {
        host: kubelet.host,
        port: kubelet.port,
        tls: Some(tls),
        server_name: None,
        timeout,
        node: Some(node.to_string()),
        dialer: Some(registry.dialer.clone()),
    };
    Ok(Kubelet { target, takes_websockets: kubelet.takes_websockets })
}

/// The kubelet client of a server without kubelet flags.
fn unverified_kubelets() -> Result<Kubelets, Status> {
    let preferred = PREFERRED.map(str::to_string).to_vec();
    Kubelets::new(&http_client::Trust::InsecureSkipVerify, None, preferred, TIMEOUT).map_err(Status::internal)
}

/// Passes a container's log on.
pub(crate) async fn log(
    registry: &Registry,
    node: &str,
    head: &RequestHead,
    place: &str,
) -> Result<HttpResponse, Status> {
    let kubelet = find(registry, node, "pods", head.query.flag("insecureSkipTLSVerifyBackend")).await?;
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = place.parse().map_err(Status::internal)?;
    request.headers_mut().insert(header::HOST, host(&kubelet.target)?);
    let failed = |why: SendError| Status::new(500, "", format!("Get \"{}{place}\": {why}", kubelet.target.url()));
    let response = forward::send(&kubelet.target, request).await.map_err(failed)?;
    if !(200..=206).contains(&response.status().as_u16()) {
        return Err(read_error(response, &head.info.name).await);
    }
    let mut response = streamed(response);
    forward::drop_hop_headers(response.headers_mut());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// Sends a request of the server itself to a kubelet.
pub(crate) async fn send(
    target: &Target,
    request: Request<Full<Bytes>>,
) -> Result<http::Response<Incoming>, SendError> {
    forward::send(target, request).await
}

fn host(target: &Target) -> Result<HeaderValue, Status> {
    HeaderValue::from_str(&target.authority()).map_err(Status::internal)
}

/// The error of a kubelet, as a Status.
async fn read_error(response: http::Response<Incoming>, name: &str) -> Status {
    let code = response.status();
    let body = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    kubelet_status(code, &text, name)
}

fn kubelet_status(code: StatusCode, text: &str, name: &str) -> Status {
    let (reason, message) = match code {
        StatusCode::INTERNAL_SERVER_ERROR => return Status::internal(text),
        StatusCode::BAD_REQUEST => return Status::bad_request(text),
        StatusCode::UNAUTHORIZED => {
            ("Unauthorized", "the server has asked for the client to provide credentials".to_string())
        }
        StatusCode::FORBIDDEN => ("Forbidden", text.to_string()),
        StatusCode::NOT_FOUND => ("NotFound", "the server could not find the requested resource".to_string()),
        StatusCode::TOO_MANY_REQUESTS => ("TooManyRequests", text.to_string()),
        _ => (
            "",
            format!("the server responded with the status code {} but did not return more information", code.as_u16()),
        ),
    };
    let mut status = Status::new(code.as_u16(), reason, format!("{message} ( pods/log {name})"));
    status.details = Some(Details { name: name.to_string(), kind: "pods/log".to_string(), ..Details::default() });
    status
}

/// Forwards a connection in a protocol that the kubelet supports.
pub(crate) async fn stream(
    call: &mut Call,
    kubelet: Kubelet,
    requested: StreamRequest,
    place: &str,
) -> Result<HttpResponse, Status> {
    let (Some(upgrade), true) = (call.content.upgrade.take(), is_upgrade(&call.head.headers)) else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let place: PathAndQuery = place.parse().map_err(Status::internal)?;
    let mut request = Request::new(());
    *request.method_mut() = call.head.method.clone();
    *request.headers_mut() = call.head.headers.clone();
    request.extensions_mut().insert(upgrade);
    let way = if kubelet.takes_websockets { RelayMode::Through } else { RelayMode::of(&call.head.headers, requested) };
    let (target, host) = (kubelet.target.clone(), host(&kubelet.target)?);
    let relayed = relay(request, way, place, Timeouts::default(), move |mut onward| async move {
        onward.headers_mut().insert(header::HOST, host);
        let sent = forward::send(&target, onward).await;
        sent.map_err(|why| format!("error dialing backend: {why}"))
    });
    match relayed.await.map_err(|error| Status::new(500, "", error.to_string()))? {
        RelayResponse::Here(response) => {
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            Ok(HttpResponse::from_parts(parts, Body::from(body)))
        }
        RelayResponse::Behind(response) => {
            let mut response = streamed(response);
            forward::drop_hop_headers(response.headers_mut());
            Ok(response)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_have_upstreams_words() {
        let cases = [
            (400, "no logs", "BadRequest", "no logs"),
            (500, "broken", "InternalError", "Internal error occurred: broken"),
            (404, "x", "NotFound", "the server could not find the requested resource ( pods/log p)"),
            (403, "Forbidden (user=a)", "Forbidden", "Forbidden (user=a) ( pods/log p)"),
        ];
        for (code, text, reason, message) in cases {
            let status = kubelet_status(StatusCode::from_u16(code).expect("a code"), text, "p");
            assert_eq!((status.code, status.reason.as_ref(), status.message.as_str()), (code, reason, message));
        }
    }
}
