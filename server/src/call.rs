//! One request on its way through the filters, and the response it gets. A function takes the part of a `Call` that it
//! uses.

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
use stdx::sources::Seat;
use tokio::sync::Notify;

use crate::fairness::{Flow, Held};
use crate::metrics::Running;
use crate::request::head::RequestHead;
use crate::request::negotiate::Media;
use crate::request::received::Received;
use crate::request::turns::Turns;
use crate::request::watched::Watched;
use crate::tls::client::ClientChain;

pub(crate) use audit_record::AuditRecord;
pub(crate) use content::Content;
pub(crate) use response::{Answer, answer, text};
pub(crate) use response::{json_answer, status_answer, warning_header};

/// What is known of the connection; shared by its requests.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub address: SocketAddr,
    /// The client's certificate chain, judged by each request.
    pub certificates: Arc<ClientChain>,
    pub watched: Watched,
    /// Notified when the client is to open another connection.
    pub leave: Arc<Notify>,
    /// Counts against the source until the client is known; None for a request of this process.
    pub seat: Option<Arc<Seat>>,
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
    /// How long the call may take; None for one without an end of its own.
    pub timeout: Option<Duration>,
    /// Texts for Warning headers, in order.
    pub warnings: Vec<String>,
    /// Counts the call among those in flight.
    pub in_flight: Option<Running>,
    pub started: Instant,
}

/// The user of a request.
#[derive(Default)]
pub(crate) struct Caller {
    /// Set by authentication; a request of this process has it from the start.
    pub user: Option<Arc<User>>,
    /// The user who impersonates `user`, if any.
    pub impersonator: Option<Arc<User>>,
    /// The constrained mode that allowed it; empty for none and for the old one.
    pub impersonation_mode: &'static str,
}

impl Caller {
    /// The user's name; empty before authentication.
    pub(crate) fn name(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.name)
    }

    /// The user who really sends the request, if it impersonates another one.
    pub(crate) fn original_user(&self) -> Option<&User> {
        self.impersonator.as_deref()
    }
}

/// What priority and fairness has given to a request.
#[derive(Default)]
pub(crate) struct Seats {
    /// The FlowSchema and priority level of the request, named in the headers of its response.
    pub flow: Option<Flow>,
    /// A watch takes them along until it has begun.
    pub held: Option<Held>,
    /// Of a level that this request's flow crowds.
    pub turns: Option<Turns>,
    /// Refused for want of a seat, in upstream's own form: how many seconds the client is to stay away.
    pub too_many: Option<u32>,
}

/// How an in-process client takes the response.
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
    pub audit: &'a AuditRecord,
}

/// The result of a stage, or a future if it has to wait: most calls need no future at all.
pub(crate) enum Step<'a> {
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
            warnings: Vec::new(),
            in_flight: None,
            started: Instant::now(),
        }
    }

    /// Reads a request of HTTP.
    pub(crate) fn from_request<B: Into<Received>>(mut request: Request<B>, peer: Peer, now: i64) -> Call {
        let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let raw_query = parts.uri.query().unwrap_or("").to_string();
        let mut call = Call::new(parts.method, parts.uri.path().to_string(), raw_query, peer, now);
        // A connection of HTTP/2 carries more than its watches.
        if call.head.info.verb == "watch" && parts.version < Version::HTTP_2 {
            call.peer.watched.set();
        }
        call.head.headers = parts.headers;
        call.content = Content { body: Some(body.into()), object: None, upgrade };
        call
    }

    /// What the write path and admission may read of this request.
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin { head: &self.head, object: self.content.object.as_ref(), audit: &self.audit }
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
