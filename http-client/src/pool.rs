//! Open connections by address: an HTTP/1.1 connection carries one request at a time and waits for the next when the
//! response was read; an HTTP/2 connection carries many.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use stdx::sync::Mutex;

use crate::connect::Address;
use crate::protocol::SendBody;

/// Servers allow a hundred streams, and watches occupy theirs for long.
const MAX_STREAMS: usize = 90;

/// Connections that are reused. Connections to one address with different credentials need different pools.
pub struct Pool<B> {
    open: Arc<Mutex<PoolState<B>>>,
    max_idle: usize,
}

struct PoolState<B> {
    idle: Vec<(Address, http1::SendRequest<B>)>,
    multiplexed: Vec<(Address, Multiplexed<B>)>,
}

/// An HTTP/2 connection. Each response holds the token until its body ends.
struct Multiplexed<B> {
    sender: http2::SendRequest<B>,
    streams: Arc<()>,
}

impl<B> Clone for Multiplexed<B> {
    fn clone(&self) -> Multiplexed<B> {
        Multiplexed { sender: self.sender.clone(), streams: self.streams.clone() }
    }
}

/// A connection for one request.
pub struct Lease<B> {
    address: Address,
    connection: Connection<B>,
    /// A request on a new connection does not wait: hyper sends it as soon as the connection's task runs.
    is_new: bool,
    open: Arc<Mutex<PoolState<B>>>,
    max_idle: usize,
}

enum Connection<B> {
    Http1(http1::SendRequest<B>),
    Http2(Multiplexed<B>),
}

/// A request without a response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection was closed before; the request can be sent on another.
    #[error(transparent)]
    NotSent(hyper::Error),
    /// The server may have received the request.
    #[error(transparent)]
    Sent(hyper::Error),
}

/// A request that failed, and the request itself if the connection has not taken it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct FailedRequest<B> {
    #[source]
    pub error: SendError,
    pub request: Option<Request<B>>,
}

impl<B> FailedRequest<B> {
    fn new(mut failed: TrySendError<Request<B>>) -> FailedRequest<B> {
        let request = failed.take_message();
        FailedRequest { error: SendError::new(failed.into_error()), request }
    }
}

impl SendError {
    fn new(error: hyper::Error) -> SendError {
        if error.is_canceled() || (error.is_closed() && !error.is_incomplete_message()) {
            SendError::NotSent(error)
        } else {
            SendError::Sent(error)
        }
    }

    /// The error of the connection.
    pub fn into_inner(self) -> hyper::Error {
        match self {
            SendError::NotSent(error) | SendError::Sent(error) => error,
        }
    }
}

impl<B> Pool<B> {
    /// Keeps at most this many idle HTTP/1.1 connections; more are closed.
    pub fn new(max_idle: usize) -> Pool<B> {
        let open = PoolState { idle: Vec::new(), multiplexed: Vec::new() };
        Pool { open: Arc::new(Mutex::new(open)), max_idle }
    }

    /// An open connection to an address. The server may have closed it: then sending fails with
    /// [`SendError::NotSent`].
    pub fn take(&self, address: &Address) -> Option<Lease<B>> {
        let connection = self.open.lock().take(address)?;
        Some(self.lease(address, connection, false))
    }

    /// A new HTTP/1.1 connection, which becomes idle after its first request.
    pub fn add_http1(&self, address: &Address, sender: http1::SendRequest<B>) -> Lease<B> {
        self.lease(address, Connection::Http1(sender), true)
    }

    /// A new HTTP/2 connection, which other requests share at once.
    pub fn add_http2(&self, address: &Address, sender: http2::SendRequest<B>) -> Lease<B> {
        let multiplexed = Multiplexed { sender, streams: Arc::new(()) };
        self.open.lock().multiplexed.push((address.clone(), multiplexed.clone()));
        self.lease(address, Connection::Http2(multiplexed), true)
    }

    /// Removes all connections from the pool; requests in flight finish.
    pub fn clear(&self) {
        let mut open = self.open.lock();
        open.idle.clear();
        open.multiplexed.clear();
    }

    fn lease(&self, address: &Address, connection: Connection<B>, is_new: bool) -> Lease<B> {
        Lease { address: address.clone(), connection, is_new, open: self.open.clone(), max_idle: self.max_idle }
    }
}

impl<B> PoolState<B> {
    fn take(&mut self, address: &Address) -> Option<Connection<B>> {
        self.multiplexed.retain(|(_, one)| !one.sender.is_closed());
        self.idle.retain(|(_, sender)| !sender.is_closed());
        let is_free = |one: &Multiplexed<B>| Arc::strong_count(&one.streams) <= MAX_STREAMS;
        let shared = self.multiplexed.iter().find(|(to, one)| to == address && is_free(one));
        if let Some((_, shared)) = shared {
            return Some(Connection::Http2(shared.clone()));
        }
        let at = self.idle.iter().position(|(to, _)| to == address)?;
        Some(Connection::Http1(self.idle.swap_remove(at).1))
    }
}

impl<B: SendBody + Unpin> Lease<B> {
    /// Whether requests need the host in their URI: HTTP/1.1 has only a path, and a Host header.
    pub fn is_http2(&self) -> bool {
        matches!(self.connection, Connection::Http2(_))
    }

    /// Waits until the connection accepts a request; fails if it is closed.
    pub async fn ready(&mut self) -> Result<(), SendError> {
        let ready = match &mut self.connection {
            Connection::Http1(sender) => sender.ready().await,
            Connection::Http2(multiplexed) => multiplexed.sender.ready().await,
        };
        ready.map_err(SendError::NotSent)
    }

    /// Sends a request. The connection returns to the pool at the end of the response's body.
    pub async fn send(self, request: Request<B>) -> Result<Response<PooledBody<B>>, SendError> {
        self.try_send(request).await.map_err(|failed| failed.error)
    }

    /// The same, for a request that cannot be built again: it is returned if it was not sent.
    pub async fn try_send(mut self, request: Request<B>) -> Result<Response<PooledBody<B>>, Box<FailedRequest<B>>> {
        if !self.is_new
            && let Err(error) = self.ready().await
        {
            return Err(Box::new(FailedRequest { error, request: Some(request) }));
        }
        let failed = |failed| Box::new(FailedRequest::new(failed));
        match self.connection {
            Connection::Http1(mut sender) => {
                let response = sender.try_send_request(request).await.map_err(failed)?;
                let back = IdleReturn { address: self.address, sender, open: self.open, max_idle: self.max_idle };
                Ok(response.map(|body| PooledBody::new(body, ConnectionHold::Idle(back))))
            }
            Connection::Http2(Multiplexed { mut sender, streams }) => {
                let response = sender.try_send_request(request).await.map_err(failed)?;
                Ok(response.map(|body| PooledBody::new(body, ConnectionHold::Stream(streams))))
            }
        }
    }
}

/// The resource that a body holds until its end.
enum ConnectionHold<B> {
    Idle(IdleReturn<B>),
    Stream(#[expect(dead_code, reason = "counted by its references")] Arc<()>),
}

struct IdleReturn<B> {
    address: Address,
    sender: http1::SendRequest<B>,
    open: Arc<Mutex<PoolState<B>>>,
    max_idle: usize,
}

impl<B> IdleReturn<B> {
    fn put(self) {
        let mut open = self.open.lock();
        if open.idle.len() < self.max_idle {
            open.idle.push((self.address, self.sender));
        }
    }
}

/// The body of a response. If it is dropped before its end, an HTTP/1.1 connection is closed.
pub struct PooledBody<B> {
    body: Incoming,
    held: Option<ConnectionHold<B>>,
}

impl<B> PooledBody<B> {
    fn new(body: Incoming, held: ConnectionHold<B>) -> PooledBody<B> {
        let mut body = PooledBody { body, held: Some(held) };
        if body.body.is_end_stream() {
            body.release();
        }
        body
    }

    fn release(&mut self) {
        if let Some(ConnectionHold::Idle(back)) = self.held.take() {
            back.put();
        }
    }
}

impl<B> Body for PooledBody<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.release();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Unpin for PooledBody<B> {}

#[cfg(test)]
mod tests;
