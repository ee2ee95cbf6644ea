//! Audit: records requests in a log and a webhook, as the policy decides. A call that the policy does not record costs
//! only the evaluation of its rules; another thread does the writing.

mod backend;
pub mod batch;
mod counts;
mod event;
pub mod log;
pub mod policy;
mod webhook;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::Tree;
use api::status::Status;
use http::{HeaderName, HeaderValue, header};
use prometheus::Registry;
use stdx::sync::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::call::{AuditRecord, Call, HttpResponse, StageResult};
use crate::outbound::callout::kubeconfig;
use crate::request::audit::{Level, RequestRecord, Stage};
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::limits::is_long_running;
use backend::{AuditEvent, Backend, EventFields, Sink};
pub use backend::{Delivery, Mode, Truncate};
use counts::Counts;
use event::Outcome;
use policy::Policy;

/// The settings from the flags.
#[derive(Debug, Clone)]
pub struct Settings {
    pub policy_file: Option<PathBuf>,
    /// `-` is standard output.
    pub log_path: Option<PathBuf>,
    pub format: Format,
    pub rotation: log::Rotation,
    pub log: Delivery,
    pub webhook_config_file: Option<PathBuf>,
    pub webhook: Delivery,
    /// The pause of the webhook after a failure.
    pub initial_backoff: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy_file: None,
            log_path: None,
            format: Format::default(),
            rotation: log::Rotation::default(),
            log: Delivery::for_log(),
            webhook_config_file: None,
            webhook: Delivery::for_webhook(),
            initial_backoff: Duration::from_secs(10),
        }
    }
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Json,
    Legacy,
}

/// Bytes of lines that wait for the log's thread.
const LOG_BUFFER: usize = 8 << 20;
/// How long shutdown waits for batches in flight.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// The audit log: its policy and its backends.
pub struct Audit {
    policy: Policy,
    backends: Vec<Backend>,
    counts: Arc<Counts>,
    ending: watch::Sender<bool>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = self.backends.iter().map(|backend| backend.mode);
        f.debug_list().entries(modes).finish()
    }
}

/// Why audit cannot start: the text names the file or the flags.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Audit {
    /// Opens the backends; None if nothing is recorded.
    pub fn open(settings: &Settings) -> Result<Option<Audit>, Error> {
        let has_backend = settings.log_path.is_some() || settings.webhook_config_file.is_some();
        let Some(policy) = &settings.policy_file else {
            let needs = "--audit-log-path and --audit-webhook-config-file need --audit-policy-file";
            return if has_backend { Err(Error(needs.to_string())) } else { Ok(None) };
        };
        let problems = [settings.log.problems("log"), settings.webhook.problems("webhook")].concat();
        if !problems.is_empty() {
            return Err(Error(problems.join("; ")));
        }
        let policy = Policy::read(policy).map_err(|error| Error(error.to_string()))?;
        let counts = Arc::new(Counts::new());
        let log = settings.log_path.as_deref().map(|path| open_log(path, settings, &counts)).transpose()?;
        let webhook =
            settings.webhook_config_file.as_deref().map(|file| open_webhook(file, settings, &counts)).transpose()?;
        let backends = log.into_iter().chain(webhook).collect();
        let (ending, running) = (watch::Sender::new(false), Mutex::default());
        Ok(Some(Audit { policy, backends, counts, ending, running }))
    }

    /// Begins to deliver batches, on the runtime of the caller.
    pub fn start(&self, registry: &Registry) {
        self.counts.register(registry);
        let started = self.backends.iter().filter_map(|backend| backend.start(&self.ending));
        self.running.lock().extend(started);
    }

    /// Stops audit: pending events are sent, up to a time limit.
    pub async fn stop(&self) {
        self.ending.send_replace(true);
        let running = std::mem::take(&mut *self.running.lock());
        let all = async {
            for task in running {
                let _ = task.await;
            }
            for backend in &self.backends {
                backend.flush().await;
            }
        };
        if tokio::time::timeout(LAST_WAIT, all).await.is_err() {
            tracing::error!("timed out delivering the last audit events");
        }
    }

    /// Sends one event to the backends without waiting; returns the backends that must be waited for.
    fn send(&self, event: &AuditEvent<'_>) -> Vec<(usize, Vec<u8>)> {
        self.counts.events.inc();
        let offered = self.backends.iter().enumerate();
        offered.filter_map(|(at, backend)| Some((at, backend.offer(event)?))).collect()
    }

    async fn finish(&self, waiting: Vec<(usize, Vec<u8>)>) {
        for (at, event) in waiting {
            self.backends[at].finish(event).await;
        }
    }

    /// Writes the first event of a request: in strict mode, a request whose event cannot be written is rejected.
    async fn send_strictly(&self, waiting: Vec<(usize, Vec<u8>)>) -> Result<(), Status> {
        for (at, event) in waiting {
            self.backends[at].send_strictly(event).await.map_err(|error| {
                self.counts.rejected.inc();
                tracing::error!(%error, "request refused: failed to write its audit event");
                Status::new(500, "InternalError", "audit failure: the event could not be written")
            })?;
        }
        Ok(())
    }

    fn has_lines(&self) -> bool {
        self.backends.iter().any(|backend| backend.format == Format::Legacy)
    }

    /// The event without its head, and a shorter form for backends with a size limit.
    fn rest(&self, call: &Call, trail: &RequestRecord, outcome: Option<&Outcome<'_>>) -> EventFields {
        let full = event::rest(call, trail, outcome, event::Bodies::Shown);
        let long = |backend: &Backend| backend.shortens(full.len() + event::HEAD_BYTES);
        let brief = trail.decision.level >= Level::Request && self.backends.iter().any(long);
        let brief = brief.then(|| event::rest(call, trail, outcome, event::Bodies::LeftOut));
        EventFields { full, brief }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.backends.iter().for_each(Backend::close);
    }
}

fn open_log(path: &Path, settings: &Settings, counts: &Arc<Counts>) -> Result<Backend, Error> {
    let failing = counts.clone();
    let failed = move |error: &io::Error| {
        failing.lost("log", 1);
        tracing::error!(%error, "failed to write audit log");
    };
    let log = log::Log::start(path, settings.rotation.clone(), LOG_BUFFER, failed)
        .map_err(|error| Error(format!("--audit-log-path {}: {error}", path.display())))?;
    Ok(Backend::new("log", &settings.log, settings.format, Sink::Log(log), counts))
}

fn open_webhook(file: &Path, settings: &Settings, counts: &Arc<Counts>) -> Result<Backend, Error> {
    let remote = kubeconfig::read(file).map_err(|error| Error(error.to_string()))?;
    let webhook = webhook::Webhook { remote, initial_backoff: settings.initial_backoff };
    let sink = Sink::Webhook(Box::new(webhook), counts.clone());
    Ok(Backend::new("webhook", &settings.webhook, Format::Json, sink, counts))
}

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The audit ID of the client, or a new one.
pub(crate) fn id(head: &RequestHead) -> HeaderValue {
    let given = head.headers.get(&AUDIT_ID).filter(|id| !id.is_empty());
    given.cloned().unwrap_or_else(|| {
        HeaderValue::from_bytes(&crate::common::ids::uid_bytes())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

pub(crate) fn sign(headers: &mut http::HeaderMap, record: &AuditRecord) {
    headers.insert(&AUDIT_ID, record.id.clone());
}

/// Applies the policy, and sends the first event.
pub(crate) fn begin<'a>(audit: &'a Audit, call: &'a mut Call) -> StageResult<'a> {
    let decision = audit.policy.decide(&call.head.info, call.caller.user.as_deref());
    audit.counts.by_level[decision.level as usize].inc();
    if decision.level == Level::None {
        return StageResult::Done(Ok(()));
    }
    let received = SystemTime::now() - call.started.elapsed();
    let trail = Box::new(RequestRecord { decision, received, request: None });
    let stage = Stage::RequestReceived;
    if !decision.records(stage) {
        call.audit.trail = Some(trail);
        return StageResult::Done(Ok(()));
    }
    let rest = audit.rest(call, &trail, None);
    call.audit.trail = Some(trail);
    let head = event::head(decision.level, stage, SystemTime::now());
    let line = || event::legacy(call, stage, SystemTime::now(), None);
    let waiting = audit.send(&AuditEvent { begins: true, head: &head, rest: &rest, line: &line });
    if waiting.is_empty() {
        return StageResult::Done(Ok(()));
    }
    StageResult::Later(Box::pin(audit.send_strictly(waiting)))
}

/// How a call ended, for `complete`.
#[derive(Clone, Copy)]
pub(crate) enum Completion<'a> {
    Answered,
    Refused(&'a Status),
    Panicked(&'a Status),
}

/// The last event of a call; that of a stream follows when the stream ends.
pub(crate) fn complete<'a>(
    audit: &'a Arc<Audit>,
    call: &mut Call,
    answer: &mut HttpResponse,
    end: Completion<'_>,
) -> StageResult<'a> {
    if call.audit.trail.is_none() && answer.status().as_u16() == 401 {
        // The user is unknown, so the policy has not been consulted yet.
        begin_unknown(audit, call);
    }
    let Some(trail) = call.audit.trail.take() else { return StageResult::Done(Ok(())) };
    let (status, stage) = match end {
        Completion::Answered => (None, Stage::ResponseComplete),
        Completion::Refused(status) => (Some(status), Stage::ResponseComplete),
        Completion::Panicked(status) => (Some(status), Stage::Panic),
    };
    let response = (trail.decision.level == Level::RequestResponse).then(|| response_object(answer, &trail)).flatten();
    let outcome = Outcome { code: answer.status().as_u16(), status, response };
    let rest = audit.rest(call, &trail, Some(&outcome));
    let code = Some(outcome.code);
    let decision = trail.decision;
    let line = |stage| event::legacy(call, stage, SystemTime::now(), code);
    let goes_on = status.is_none() && is_long_running(&call.head.info);
    let now = if goes_on { Stage::ResponseStarted } else { stage };
    let mut waiting = Vec::new();
    if decision.records(now) {
        let head = event::head(decision.level, now, SystemTime::now());
        waiting = audit.send(&AuditEvent { begins: false, head: &head, rest: &rest, line: &|| line(now) });
    }
    if goes_on && decision.records(Stage::ResponseComplete) {
        let line = if audit.has_lines() { line(Stage::ResponseComplete) } else { Vec::new() };
        let last = FinalEvent { audit: audit.clone(), level: decision.level, rest, line };
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = Body::held(body, Box::new(last));
    }
    if waiting.is_empty() {
        return StageResult::Done(Ok(()));
    }
    StageResult::Later(Box::pin(async move {
        audit.finish(waiting).await;
        Ok(())
    }))
}

fn begin_unknown(audit: &Audit, call: &mut Call) {
    let decision = audit.policy.decide(&call.head.info, None);
    if decision.level != Level::None {
        let received = SystemTime::now() - call.started.elapsed();
        call.audit.trail = Some(Box::new(RequestRecord { decision, received, request: None }));
    }
}

/// Sends the last event of a stream when it is dropped with the stream.
struct FinalEvent {
    audit: Arc<Audit>,
    level: Level,
    rest: EventFields,
    line: Vec<u8>,
}

impl Drop for FinalEvent {
    fn drop(&mut self) {
        let head = event::head(self.level, Stage::ResponseComplete, SystemTime::now());
        let line = || self.line.clone();
        let waiting = self.audit.send(&AuditEvent { begins: false, head: &head, rest: &self.rest, line: &line });
        if waiting.is_empty() {
            return;
        }
        // A destructor cannot wait: a task does, or the event is lost with the runtime.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let audit = self.audit.clone();
                runtime.spawn(async move { audit.finish(waiting).await });
            }
            Err(_) => self.audit.counts.lost("log", waiting.len() as u64),
        }
    }
}

/// The response as a tree. A list that would be encoded while it is sent is encoded here instead.
fn response_object(response: &mut HttpResponse, trail: &RequestRecord) -> Option<Tree> {
    if matches!(response.body(), Body::List(_))
        && let Body::List(list) = std::mem::replace(response.body_mut(), Body::empty())
    {
        *response.body_mut() = Body::from(list.collect());
    }
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let bytes = response.body().bytes()?;
    event::decoded(bytes, kind, trail.decision.omit_managed_fields)
}
