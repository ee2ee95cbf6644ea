//! Requests that become streams: exec, attach, port-forward. WebSocket first, SPDY for old servers.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use streaming::Transport;

use super::{Client, Request, Response};
use crate::error::{Error, Result};

/// An upgraded connection.
pub(crate) struct Upgraded {
    pub(crate) io: TokioIo<hyper::upgrade::Upgraded>,
    pub(crate) transport: Transport,
    pub(crate) protocol: String,
}

impl Client {
    /// Sends a request that upgrades its connection, over WebSocket, and over SPDY if the server does not know that.
    pub(crate) async fn upgrade(&self, request: &Request, websocket: &[&str], spdy: &[&str]) -> Result<Upgraded> {
        match self.upgrade_to(request, Transport::WebSocket, websocket).await {
            Err(Error::Server { status, .. }) if matches!(status.code, 400 | 403 | 405) && may_be_old(&status) => {
                self.upgrade_to(request, Transport::Spdy, spdy).await
            }
            other => other,
        }
    }

    /// Passes a request that upgrades its connection on, over a connection of its own.
    pub(crate) async fn forward_upgrade(
        &self,
        head: &http::request::Parts,
        target: &str,
    ) -> Result<http::Response<hyper::body::Incoming>> {
        let mut message = self.forwarded(head, target, Bytes::new()).await?;
        for name in [http::header::CONNECTION, http::header::UPGRADE] {
            if let Some(value) = head.headers.get(&name) {
                message.headers_mut().insert(name, value.clone());
            }
        }
        let stream = self.dialer.connect_http1().await?;
        let sent = http_client::send_once(stream, self.dialer.prepare(message, false)).await;
        sent.map_err(|error| self.dialer.failure(&stdx::error::chain(&error)))
    }

    async fn upgrade_to(&self, request: &Request, transport: Transport, protocols: &[&str]) -> Result<Upgraded> {
        let mut request = request.clone();
        request.method = if transport == Transport::Spdy { http::Method::POST } else { http::Method::GET };
        let mut message = self.message(&request).await?;
        streaming::request_upgrade(&mut message, transport, protocols);
        let requested = message.headers().clone();
        let message: http::Request<Full<Bytes>> = self.dialer.prepare(message, false);
        self.options.log.request(&self.url(), &request, &requested);
        let started = std::time::Instant::now();
        let stream = self.dialer.connect_http1().await?;
        let sent = http_client::send_once(stream, message).await;
        let response = sent.map_err(|error| self.dialer.failure(&stdx::error::chain(&error)))?;
        self.options.log.response(&self.url(), &request, &response, started.elapsed());
        self.options.warnings.print(response.headers());
        if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let response = response.map(client::Body::new);
            return Err(Response::new(response, self.options.log.clone()).into_error(&request.method).await);
        }
        let protocol =
            streaming::agreed(&requested, &response, transport).map_err(|error| Error::new(error.to_string()))?;
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|error| self.dialer.failure(&stdx::error::chain(&error)))?;
        Ok(Upgraded { io: TokioIo::new(upgraded), transport, protocol })
    }
}

/// Whether the server refused the upgrade itself, not the user.
fn may_be_old(status: &api::status::Status) -> bool {
    status.reason != "Forbidden" || status.details.as_ref().is_some_and(|details| details.kind.is_empty())
}
