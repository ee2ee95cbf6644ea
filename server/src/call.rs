//! One request in the filter chain, and its response. A function accepts only the part of a `Call` that it uses.

mod audit_record;
mod content;
mod response;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::status::Status;
use bytes::Bytes;
use http::{Method, Request, Version, header};
use kinds::User;
use stdx::sources::ConnectionPermit;
use tokio::sync::Notify;

use crate::common::deadline::Deadline;
use crate::fairness::{ConcurrencyGuard, Flow};
use crate::metrics::RequestGauge;
use crate::request::cpu_permits::CpuPermits;
use crate::request::head::RequestHead;
use crate::request::negotiate::Media;
use crate::request::request_body::RequestBody;
use crate::request::watch_flag::WatchFlag;
use crate::tls::client::ClientChain;

pub(crate) use audit_record::AuditRecord;
pub(crate) use content::Content;
pub(crate) use response::{HttpResponse, build_response, text};
pub(crate) use response::{json_response, status_response, warning_header};

/// The client's end of the connection; shared by its requests.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub address: SocketAddr,
    /// The client's certificate chain; each request verifies it.
    pub certificates: Arc<ClientChain>,
    pub watched: WatchFlag,
    /// Notified when the client should open another connection.
    pub leave: Arc<Notify>,
    /// Counts against the source until the client is known; None for a request of this process.
    pub seat: Option<Arc<ConnectionPermit>>,
}

/// One request in progress.
pub(crate) struct Call {
    pub head: RequestHead,
    pub content: Content,
    pub peer: Peer,
    pub caller: Caller,
    pub audit: AuditRecord,
    pub seats: Seats,
    pub delivery: Delivery,
    /// The timeout of the call; None if it has no deadline.
    pub timeout: Option<Duration>,
    /// The end of the timeout.
    pub deadline: Deadline,
    /// Texts for Warning headers, in order.
    pub warnings: Vec<String>,
    /// Counts the call among those in flight.
    pub in_flight: Option<RequestGauge>,
    pub started: Instant,
}

/// The user of a request.
#[derive(Default)]
pub(crate) struct Caller {
    /// Set by authentication; a request of this process has it from the start.
    pub user: Option<Arc<User>>,
    /// The user who impersonates `user`, if any.
    pub impersonator: Option<Arc<User>>,
    /// The constrained mode that allowed the impersonation; empty for none and for the legacy mode.
    pub impersonation_mode: &'static str,
}

impl Caller {
    /// The user's name; empty before authentication.
    pub(crate) fn name(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.name)
    }

    /// The authenticated user, if the request impersonates another one.
    pub(crate) fn original_user(&self) -> Option<&User> {
        self.impersonator.as_deref()
    }
}

/// The seats that priority and fairness has assigned to a request.
#[derive(Default)]
pub(crate) struct Seats {
    /// The FlowSchema and priority level of the request, named in the headers of its response.
    pub flow: Option<Flow>,
    /// The seats of the request. A watch holds them until it has begun.
    pub held: Option<ConcurrencyGuard>,
    /// The turns of a level that this request's flow crowds.
    pub turns: Option<CpuPermits>,
    /// Rejected because no seat is free: the seconds for Retry-After, in upstream's own format.
    pub too_many: Option<u32>,
}

/// How an in-process client receives the response.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivery {
    /// A watch hands over objects as they are stored.
    pub pieces: bool,
    /// The client ignores the body of a successful response.
    pub unread: bool,
}

/// The request that a write comes from, as the write path and admission see it.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub head: &'a RequestHead,
    /// The object in the body, as it was sent.
    pub object: Option<&'a (Media, Bytes)>,
    pub deadline: Deadline,
    pub audit: &'a AuditRecord,
}

/// The result of a stage, or a future if it has to wait: most calls need no future at all.
pub(crate) enum StageResult<'a> {
    Done(Result<(), Status>),
    Later(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>),
}

impl Call {
    /// A call for a path, before its user is known.
    pub(crate) fn new(method: Method, path: String, raw_query: String, peer: Peer, now: i64) -> Call {
        Call {
            head: RequestHead::new(method, path, raw_query, now),
            content: Content::default(),
            peer,
            caller: Caller::default(),
            audit: AuditRecord::default(),
            seats: Seats::default(),
            delivery: Delivery::default(),
            timeout: None,
            deadline: Deadline::NONE,
            warnings: Vec::new(),
            in_flight: None,
            started: Instant::now(),
        }
    }

    /// Reads a request of HTTP.
    pub(crate) fn from_request<B: Into<RequestBody>>(mut request: Request<B>, peer: Peer, now: i64) -> Call {
        let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let raw_query = parts.uri.query().unwrap_or("").to_string();
        let mut call = Call::new(parts.method, parts.uri.path().to_string(), raw_query, peer, now);
        // An HTTP/2 connection carries other requests besides its watches.
        if call.head.info.verb == "watch" && parts.version < Version::HTTP_2 {
            call.peer.watched.set();
        }
        call.head.headers = parts.headers;
        call.content = Content { body: Some(body.into()), object: None, upgrade };
        call
    }

    /// The part of this request that the write path and admission may read.
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin { head: &self.head, object: self.content.object.as_ref(), deadline: self.deadline, audit: &self.audit }
    }

    /// Reads the body, and keeps it for the audit log if that records it.
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, Status> {
        let bytes = self.content.take_body().await?;
        if let Some(trail) = &mut self.audit.trail {
            trail.request = Some(bytes.clone());
        }
        Ok(bytes)
    }
}
