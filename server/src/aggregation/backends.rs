//! The kept connections to extension API servers: HTTP/2 if they speak it, HTTP/1.1 otherwise. A request that changes
//! protocols has a connection of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Parts, Scheme};
use http::{HeaderValue, Method, Request, Response, Uri, Version, header};
use http_client::pool::{FailedRequest, Lease, Pool, PooledBody, SendError};
use http_client::protocol::{Http2Options, KeepAlive};
use http_client::{Identity, handshake_http1, handshake_http2, tls};
use rustls::ClientConfig;
use stdx::sync::Mutex;

use super::target::TargetError;
use super::{Aggregator, ApiService};
use crate::registry::subresources::proxy::forward;
use crate::registry::subresources::proxy::target::Target;
use crate::request::request_body::RequestBody;

/// The maximum number of idle HTTP/1.1 connections to one extension API server.
const MAX_IDLE: usize = 8;
/// Finds connections whose other side has vanished.
const PINGS: KeepAlive = KeepAlive { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) };

/// The bytes that a client may leave unread. The window of a connection holds those of all streams: a stalled watch
/// must not block other requests.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 128 << 20;

/// The response of an extension API server.
pub(super) type BackendResponse = Response<PooledBody<RequestBody>>;

/// The connections of all extension API servers, by the name of the APIService.
#[derive(Default)]
pub(super) struct Backends {
    open: Mutex<HashMap<String, Arc<Backend>>>,
}

/// An extension API server, with the certificates of its connections.
pub(super) struct Backend {
    service: Arc<ApiService>,
    identity: Option<Arc<Identity>>,
    tls: Arc<ClientConfig>,
    pool: Pool<RequestBody>,
}

impl Backends {
    /// The connections of a service; new ones if its certificates have changed.
    pub(super) fn get(
        &self,
        service: &Arc<ApiService>,
        identity: Option<Arc<Identity>>,
    ) -> Result<Arc<Backend>, TargetError> {
        if let Some(known) = self.open.lock().get(&service.name).filter(|known| known.fits(service, identity.as_ref()))
        {
            return Ok(known.clone());
        }
        let config = tls::config(&service.trust()?, identity.as_deref(), &[tls::HTTP2, tls::HTTP1])?;
        let (tls, pool) = (Arc::new(config), Pool::new(MAX_IDLE));
        let backend = Arc::new(Backend { service: service.clone(), identity, tls, pool });
        self.open.lock().insert(service.name.clone(), backend.clone());
        Ok(backend)
    }

    /// Drops the connections of all other APIServices; requests in flight finish.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.open.lock().retain(|name, _| is_known(name));
    }
}

impl Backend {
    fn fits(&self, service: &ApiService, identity: Option<&Arc<Identity>>) -> bool {
        let same_identity = match (&self.identity, identity) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        same_identity && self.service.has_same_certificates(service)
    }

    /// Where a request goes now: endpoints change.
    pub(super) fn target(&self, aggregator: &Aggregator, service: &ApiService) -> Result<Target, TargetError> {
        let address = aggregator.resolve(&service.service)?;
        let (tls, dialer) = (self.tls.clone(), Some(aggregator.dialer.clone()));
        Ok(Target::verified(address, tls, service.server_name(), dialer))
    }

    /// Sends a request over a kept connection, or over a new one.
    pub(super) async fn send(
        &self,
        target: &Target,
        mut request: Request<RequestBody>,
    ) -> Result<BackendResponse, forward::SendError> {
        // The server may close a kept connection at any time: what it has not received is sent again.
        if let Some(lease) = self.pool.take(&target.address()) {
            let copy = copy_of_read(&request);
            match lease_request(lease, target, request).await {
                Ok(response) => return Ok(response),
                Err(failed) => request = again(*failed, copy)?,
            }
        }
        let lease = self.connect(target).await?;
        lease_request(lease, target, request).await.map_err(|failed| failed.error.into_inner().into())
    }

    async fn connect(&self, target: &Target) -> Result<Lease<RequestBody>, forward::SendError> {
        let stream = forward::open(target).await?;
        if stream.is_http2() {
            let options = Http2Options {
                keep_alive: Some(PINGS),
                stream_window: Some(STREAM_WINDOW),
                connection_window: Some(CONNECTION_WINDOW),
            };
            return Ok(self.pool.add_http2(&target.address(), handshake_http2(stream, options).await?));
        }
        Ok(self.pool.add_http1(&target.address(), handshake_http1(stream).await?))
    }
}

/// HTTP/2 has the host in the URI, HTTP/1.1 in a header.
async fn lease_request(
    lease: Lease<RequestBody>,
    target: &Target,
    mut request: Request<RequestBody>,
) -> Result<BackendResponse, Box<FailedRequest<RequestBody>>> {
    let path = request.uri().path_and_query().cloned();
    let mut parts = Parts::default();
    if lease.is_http2() {
        request.headers_mut().remove(header::HOST);
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = target.authority().parse().ok();
    } else if let Ok(host) = HeaderValue::from_str(&target.authority()) {
        request.headers_mut().insert(header::HOST, host);
    }
    parts.path_and_query = path;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = if lease.is_http2() { Version::HTTP_2 } else { Version::HTTP_11 };
    lease.try_send(request).await
}

/// A copy of a request without a body that only reads, which may be sent twice.
fn copy_of_read(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_read || !http_body::Body::is_end_stream(request.body()) {
        return None;
    }
    let mut copy = Request::new(RequestBody::Whole(None));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// The request to send again after a kept connection has failed.
fn again(
    failed: FailedRequest<RequestBody>,
    copy: Option<Request<RequestBody>>,
) -> Result<Request<RequestBody>, forward::SendError> {
    match (failed.request, copy, failed.error) {
        (Some(request), _, _) | (None, Some(request), _) => Ok(request),
        (None, None, SendError::NotSent(error) | SendError::Sent(error)) => Err(error.into()),
    }
}
