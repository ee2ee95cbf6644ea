//! One request on its way through the filters, and the response it gets.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::status::Status;
use api::{Tree, json};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use kinds::User;
use stdx::sources::Seat;
use stdx::sync::Mutex;
use tokio::sync::Notify;

use crate::authorization::{Decision, Reason};
use crate::fairness::{Flow, Held};
use crate::metrics::Running;
use crate::request::audit::{Level, Trail};
use crate::request::body::Body;
use crate::request::info::{Query, RequestInfo};
use crate::request::negotiate::{Accepted, Media};
use crate::request::received::Received;
use crate::request::watched::Watched;
use crate::tls::client::ClientChain;

/// The most that a body may hold.
pub const MAX_BODY_BYTES: usize = 3 << 20;
/// A body that is too large is read to its end as long as it is below this.
const MAX_DRAINED_BYTES: usize = 32 << 20;

/// What is known of the connection; shared by its requests.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client's certificate chain, judged by each request.
    pub certificates: Arc<ClientChain>,
    pub watched: Watched,
    /// Told when the client is to open another connection.
    pub leave: Arc<Notify>,
    /// Counts against the source until the client is known; None for a request of this process.
    pub seat: Option<Arc<Seat>>,
}

pub struct Call {
    pub method: Method,
    pub path: String,
    pub raw_query: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Option<Received>,
    /// The object in the body, once it was read: errors show parts of it.
    pub sent: Option<(Media, Bytes)>,
    /// Taken by WebSocket watches and proxies.
    pub upgrade: Option<hyper::upgrade::OnUpgrade>,
    pub info: RequestInfo,
    pub peer: Peer,
    /// Set by authentication; a request of this process has it from the start.
    pub user: Option<Arc<User>>,
    /// The user who impersonates `user`, if any.
    pub impersonator: Option<Arc<User>>,
    /// The constrained mode that allowed it; empty for none and for the old one.
    pub impersonation_mode: &'static str,
    /// The audit ID, the same in every event and response of this call.
    pub audit_id: HeaderValue,
    /// Set if the audit policy records this call.
    pub audit: Option<Box<Trail>>,
    /// How long the call may take; None for one without an end of its own.
    pub timeout: Option<Duration>,
    /// The FlowSchema and priority level of the call, named in the headers of its response.
    pub flow: Option<Flow>,
    /// Seats; a watch takes them along until it has begun.
    pub held: Option<Held>,
    /// Of a level that this call's flow crowds.
    pub turns: Option<crate::request::turns::Turns>,
    /// A watch hands over objects as they are stored; an in-process request may ask for it.
    pub pieces: bool,
    /// The client ignores the body of a successful response; an in-process request may say so.
    pub unread: bool,
    /// Refused for want of a seat, in upstream's own form: how many seconds the client is to stay away.
    pub too_many: Option<u32>,
    /// Texts for Warning headers, in order.
    pub warnings: Vec<String>,
    /// The decision of the authorizers, for the audit log.
    pub decided: Option<(Decision, Reason)>,
    /// Annotations that stages and plugins add to the audit event.
    pub annotations: Annotations,
    /// Counts the call among those in flight.
    pub in_flight: Option<Running>,
    pub started: Instant,
    /// Seconds since the Unix epoch, the same for the whole request.
    pub now: i64,
}

/// The result of a stage, or a future if it has to wait: most calls need no future at all.
pub enum Step<'a> {
    Done(Result<(), Status>),
    Later(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>),
}

/// Annotations of a request's audit event; the first word on a key counts.
#[derive(Debug, Default)]
pub struct Annotations(Mutex<Vec<(Cow<'static, str>, String)>>);

impl Annotations {
    pub fn add(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let key = key.into();
        let mut all = self.0.lock();
        if !all.iter().any(|(other, _)| *other == key) {
            all.push((key, value.into()));
        }
    }

    pub fn read<T>(&self, read: impl FnOnce(&[(Cow<'static, str>, String)]) -> T) -> T {
        read(&self.0.lock())
    }
}

impl Call {
    /// A call for a path, before its user is known.
    pub fn new(method: Method, path: String, raw_query: String, peer: Peer, now: i64) -> Call {
        let query = Query::parse(&raw_query);
        Call {
            info: RequestInfo::parse(&method, &path, &query),
            method,
            path,
            raw_query,
            query,
            headers: HeaderMap::new(),
            body: None,
            sent: None,
            upgrade: None,
            peer,
            user: None,
            impersonator: None,
            impersonation_mode: "",
            audit_id: HeaderValue::from_static(""),
            audit: None,
            timeout: None,
            flow: None,
            held: None,
            turns: None,
            pieces: false,
            unread: false,
            too_many: None,
            warnings: Vec::new(),
            decided: None,
            annotations: Annotations::default(),
            in_flight: None,
            started: Instant::now(),
            now,
        }
    }

    /// Reads a request of HTTP.
    pub fn from_request<B: Into<Received>>(mut request: Request<B>, peer: Peer, now: i64) -> Call {
        let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let raw_query = parts.uri.query().unwrap_or("").to_string();
        let call = Call::new(parts.method, parts.uri.path().to_string(), raw_query, peer, now);
        // A connection of HTTP/2 carries more than its watches.
        if call.info.verb == "watch" && parts.version < Version::HTTP_2 {
            call.peer.watched.set();
        }
        Call { headers: parts.headers, body: Some(body.into()), upgrade, ..call }
    }

    pub fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Reads the body; more than the limit is refused without being kept.
    pub async fn read_body(&mut self) -> Result<Bytes, Status> {
        let bytes = self.take_body().await?;
        if let Some(trail) = &mut self.audit {
            trail.request = Some(bytes.clone());
        }
        Ok(bytes)
    }

    async fn take_body(&mut self) -> Result<Bytes, Status> {
        let Some(mut body) = self.body.take() else { return Ok(Bytes::new()) };
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            drain(&mut body, 0).await;
            return Err(too_large());
        }
        let mut all = BytesMut::new();
        let mut first = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Status::bad_request(format!("the body could not be read: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = all.len() + first.as_ref().map_or(0, Bytes::len) + data.len();
            if length > MAX_BODY_BYTES {
                drain(&mut body, length).await;
                return Err(too_large());
            }
            // Most bodies come in one piece, which is not copied.
            match first.take() {
                None if all.is_empty() => first = Some(data),
                earlier => {
                    all.extend_from_slice(&earlier.unwrap_or_default());
                    all.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| all.freeze()))
    }

    pub fn user_name(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.name)
    }

    /// Says something about this call in its audit event; nothing where there is none.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        if self.audit.is_some() {
            self.annotations.add(key, value);
        }
    }

    /// Adds an annotation that repeats parts of a body, only if the policy records bodies.
    pub fn annotate_request(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if self.audit.as_ref().is_some_and(|trail| trail.decision.level >= Level::Request) {
            self.annotations.add(key, value());
        }
    }

    /// The user who really sends the request, if it impersonates another one.
    pub fn original_user(&self) -> Option<&kinds::User> {
        self.impersonator.as_deref()
    }
}

/// Reads the rest of a refused body, up to a limit: a client that is still writing would otherwise see a broken
/// connection instead of the response.
async fn drain(body: &mut Received, mut seen: usize) {
    while seen < MAX_DRAINED_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(1, Bytes::len),
            _ => return,
        }
    }
}

fn too_large() -> Status {
    Status::too_large(format!("Request entity too large: limit is {MAX_BODY_BYTES}"))
}

pub type Answer = Response<Body>;

/// A response with a complete body.
pub fn answer(code: u16, content_type: &'static str, body: impl Into<Body>) -> Answer {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub fn text(code: u16, body: &str) -> Answer {
    answer(code, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

/// A tree that is not a stored object, as JSON.
pub fn json_answer(code: u16, tree: &Tree) -> Answer {
    let mut bytes = json::encode(tree, api::schema::type_of("", "v1", tree.str("kind")));
    bytes.push(b'\n');
    answer(code, "application/json", bytes)
}

/// Every error becomes HTTP here.
pub fn status_answer(status: &Status, accepted: Accepted) -> Answer {
    let tree = status.to_tree();
    let mut response = match accepted.media {
        Media::Protobuf => {
            let bytes = crate::request::codec::protobuf(&tree, "", "v1", "Status");
            answer(status.code, "application/vnd.kubernetes.protobuf", bytes)
        }
        Media::Yaml => answer(status.code, "application/yaml", api::yaml::encode(&tree)),
        Media::Json => json_answer(status.code, &tree),
    };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// `Warning: 299 - "text"`, as RFC 7234 and upstream write it.
pub fn warning_header(text: &str) -> Option<HeaderValue> {
    let mut quoted = String::with_capacity(text.len() + 10);
    quoted.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    HeaderValue::from_bytes(quoted.as_bytes()).ok()
}
