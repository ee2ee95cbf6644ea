//! Audit: who did what, told to a log and a webhook as far as a policy says. A call that the policy is
//! silent about costs the look at its rules; writing happens on another thread.

mod event;
pub mod log;
pub mod policy;
pub mod webhook;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use api::Tree;
use api::status::Status;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tokio::sync::mpsc;

use crate::Server;
use crate::call::{Answer, Call};
use crate::callout::kubeconfig::{self, Remote};
use crate::chain::Step;
use crate::http::body::Body;
use crate::limits::is_long_running;
use event::Outcome;
use policy::{Decision, Level, Policy, Stage};

/// What the flags say.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub policy_file: Option<PathBuf>,
    /// `-` is standard output.
    pub log_path: Option<PathBuf>,
    pub format: Format,
    pub mode: Mode,
    pub rotation: log::Rotation,
    pub webhook_config_file: Option<PathBuf>,
    pub batch: webhook::Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Json,
    Legacy,
}

/// What a request does when the log is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Never waits; what does not fit is lost and counted.
    Batch,
    /// Waits for room.
    #[default]
    Blocking,
    /// Waits until its beginning is written, and is refused where that fails.
    BlockingStrict,
}

/// Bytes of lines that wait for the log's thread.
const LOG_BUFFER: usize = 8 << 20;

pub struct Audit {
    policy: Policy,
    log: Option<Arc<log::Log>>,
    format: Format,
    mode: Mode,
    webhook: Option<mpsc::Sender<Vec<u8>>>,
    /// Until the server starts it.
    idle_webhook: Mutex<Option<Idle>>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("format", &self.format).field("mode", &self.mode).finish_non_exhaustive()
    }
}

pub struct Counts {
    events: IntCounter,
    lost: IntCounterVec,
}

impl Counts {
    fn new() -> Counts {
        let events = IntCounter::new("apiserver_audit_event_total", "Audit events.");
        let lost =
            IntCounterVec::new(Opts::new("apiserver_audit_error_total", "Audit events that were lost."), &["plugin"]);
        Counts { events: events.expect("the name is valid"), lost: lost.expect("the name is valid") }
    }

    fn lost(&self, plugin: &str, count: u64) {
        self.lost.with_label_values(&[plugin]).inc_by(count);
    }
}

/// Why auditing cannot begin: the text names the file.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Audit {
    /// None where nothing is to be told.
    pub fn open(settings: &Settings) -> Result<Option<Audit>, Error> {
        let has_backend = settings.log_path.is_some() || settings.webhook_config_file.is_some();
        let Some(policy) = &settings.policy_file else {
            let needs = "--audit-log-path and --audit-webhook-config-file need --audit-policy-file";
            return if has_backend { Err(Error(needs.to_string())) } else { Ok(None) };
        };
        let policy = Policy::read(policy).map_err(|error| Error(error.to_string()))?;
        let counts = Arc::new(Counts::new());
        let log = settings.log_path.as_deref().map(|path| open_log(path, settings, &counts)).transpose()?;
        let remote = settings.webhook_config_file.as_deref().map(kubeconfig::read).transpose();
        let remote = remote.map_err(|error| Error(error.to_string()))?;
        let (webhook, idle) = remote.map(|remote| idle(remote, &settings.batch)).unzip();
        let (format, mode, idle_webhook) = (settings.format, settings.mode, Mutex::new(idle));
        Ok(Some(Audit { policy, log, format, mode, webhook, idle_webhook, counts }))
    }

    /// Begins to send, on the runtime of the caller.
    pub fn start(&self, registry: &Registry) {
        for collector in [
            Box::new(self.counts.events.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(self.counts.lost.clone()),
        ] {
            // A second server of the same process, in a test, has a registry of its own.
            let _ = registry.register(collector);
        }
        let idle = self.idle_webhook.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((remote, batch, events)) = idle {
            tokio::spawn(webhook::run(remote, batch, events, self.counts.clone()));
        }
    }

    /// Hands one event to the backends without waiting; false where the log has no room, and must not lose it.
    fn tell(&self, call_line: impl FnOnce() -> Vec<u8>, rest: &[u8], level: Level, stage: Stage) -> bool {
        self.counts.events.inc();
        let head = event::head(level, stage, SystemTime::now());
        if let Some(webhook) = &self.webhook
            && webhook.try_send([&head, rest, b"}"].concat()).is_err()
        {
            self.counts.lost("webhook", 1);
        }
        let Some(log) = &self.log else { return true };
        let added = match self.format {
            Format::Legacy => log.add(&[&call_line()]),
            Format::Json => log.add(&[&head, rest, b"}"]),
        };
        if !added && self.mode == Mode::Batch {
            self.counts.lost("log", 1);
            return true;
        }
        added
    }

    /// The log is behind: in a blocking mode the request waits for it.
    async fn catch_up(&self, line: Vec<u8>) {
        if let Some(log) = &self.log {
            log.add_later(&[&line]).await;
        }
    }

    /// Waits until everything before this is written.
    async fn written(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.log {
            Some(log) => log.write(&[bytes]).await,
            None => Ok(()),
        }
    }

    /// The line of an event, for the log.
    fn line(&self, call_line: impl FnOnce() -> Vec<u8>, rest: &[u8], level: Level, stage: Stage) -> Vec<u8> {
        match self.format {
            Format::Legacy => call_line(),
            Format::Json => [&event::head(level, stage, SystemTime::now()), rest, b"}"].concat(),
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.close();
        }
    }
}

fn open_log(path: &Path, settings: &Settings, counts: &Arc<Counts>) -> Result<Arc<log::Log>, Error> {
    let counts = counts.clone();
    let failed = move |error: &io::Error| {
        counts.lost("log", 1);
        tracing::error!(%error, "the audit log cannot be written");
    };
    log::Log::start(path, settings.rotation.clone(), LOG_BUFFER, failed)
        .map_err(|error| Error(format!("--audit-log-path {}: {error}", path.display())))
}

type Idle = (Remote, webhook::Batch, mpsc::Receiver<Vec<u8>>);

fn idle(remote: Remote, batch: &webhook::Batch) -> (mpsc::Sender<Vec<u8>>, Idle) {
    let (sender, receiver) = mpsc::channel(batch.buffer.max(1));
    (sender, (remote, batch.clone(), receiver))
}

/// What is kept of a call that is told of.
pub struct Trail {
    decision: Decision,
    received: SystemTime,
    /// The body, where the policy asks for it or the object's name is in it.
    pub request: Option<Bytes>,
}

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The caller's own, or a new one.
pub fn id(call: &Call) -> HeaderValue {
    let given = call.headers.get(&AUDIT_ID).filter(|id| !id.is_empty());
    given.cloned().unwrap_or_else(|| {
        HeaderValue::from_bytes(&crate::ids::uid_bytes()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

pub fn sign(headers: &mut http::HeaderMap, call: &Call) {
    headers.insert(&AUDIT_ID, call.audit_id.clone());
}

/// The stage: what the policy says, and the first event.
pub fn begin<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> Step<'a> {
    let Some(audit) = &server.config.audit else { return Step::Done(Ok(())) };
    let decision = audit.policy.decide(&call.info, call.user.as_deref());
    if decision.level == Level::None {
        return Step::Done(Ok(()));
    }
    let received = SystemTime::now() - call.started.elapsed();
    let trail = Box::new(Trail { decision, received, request: None });
    let stage = Stage::RequestReceived;
    if !decision.tells(stage) {
        call.audit = Some(trail);
        return Step::Done(Ok(()));
    }
    let rest = event::rest(call, &trail, None);
    call.audit = Some(trail);
    if audit.mode == Mode::BlockingStrict {
        return Step::Later(Box::pin(strictly(audit, decision.level, rest)));
    }
    let legacy = || event::legacy(call, stage, SystemTime::now(), None);
    if audit.tell(legacy, &rest, decision.level, stage) {
        return Step::Done(Ok(()));
    }
    let line = audit.line(legacy, &rest, decision.level, stage);
    Step::Later(Box::pin(async {
        audit.catch_up(line).await;
        Ok(())
    }))
}

/// No request without its line.
async fn strictly(audit: &Audit, level: Level, rest: Vec<u8>) -> Result<(), Status> {
    audit.counts.events.inc();
    let bytes = [&event::head(level, Stage::RequestReceived, SystemTime::now()), rest.as_slice(), b"}"].concat();
    audit.written(&bytes).await.map_err(|error| {
        tracing::error!(%error, "a request is refused because the audit log cannot be written");
        Status::new(500, "InternalError", "audit failure: the event could not be written")
    })
}

/// How a call ended, for `complete`.
pub enum End<'a> {
    Answered,
    Refused(&'a Status),
    Panicked(&'a Status),
}

/// The last event of a call; that of a stream follows when the stream ends.
pub async fn complete(server: &Arc<Server>, call: &mut Call, answer: &mut Answer, end: End<'_>) {
    let Some(audit) = &server.config.audit else { return };
    if call.audit.is_none() && answer.status().as_u16() == 401 {
        // Nobody was known: the policy has not been asked yet.
        begin_unknown(audit, call);
    }
    let Some(trail) = call.audit.take() else { return };
    let (status, stage) = match end {
        End::Answered => (None, Stage::ResponseComplete),
        End::Refused(status) => (Some(status), Stage::ResponseComplete),
        End::Panicked(status) => (Some(status), Stage::Panic),
    };
    let response = (trail.decision.level == Level::RequestResponse).then(|| response_object(answer, &trail)).flatten();
    let outcome = Outcome { code: answer.status().as_u16(), status, response };
    let rest = event::rest(call, &trail, Some(&outcome));
    let code = Some(outcome.code);
    let decision = trail.decision;
    let line = |stage| event::legacy(call, stage, SystemTime::now(), code);
    let goes_on = status.is_none() && is_long_running(&call.info);
    let now = if goes_on { Stage::ResponseStarted } else { stage };
    if decision.tells(now) && !audit.tell(|| line(now), &rest, decision.level, now) {
        audit.catch_up(audit.line(|| line(now), &rest, decision.level, now)).await;
    }
    if goes_on && decision.tells(Stage::ResponseComplete) {
        let line = if audit.format == Format::Legacy { line(Stage::ResponseComplete) } else { Vec::new() };
        let last = Last { audit: audit.clone(), level: decision.level, rest, line };
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = Body::held(body, Box::new(last));
    }
}

fn begin_unknown(audit: &Audit, call: &mut Call) {
    let decision = audit.policy.decide(&call.info, None);
    if decision.level != Level::None {
        let received = SystemTime::now() - call.started.elapsed();
        call.audit = Some(Box::new(Trail { decision, received, request: None }));
    }
}

/// Tells of a stream's end when it is dropped with it.
struct Last {
    audit: Arc<Audit>,
    level: Level,
    rest: Vec<u8>,
    line: Vec<u8>,
}

impl Drop for Last {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.line);
        // Nobody can wait here: what does not fit is lost, and counted.
        if !self.audit.tell(|| line, &self.rest, self.level, Stage::ResponseComplete) {
            self.audit.counts.lost("log", 1);
        }
    }
}

/// The answer as a tree. A list that is made while it is sent is made here instead.
fn response_object(answer: &mut Answer, trail: &Trail) -> Option<Tree> {
    if matches!(answer.body(), Body::List(_))
        && let Body::List(list) = std::mem::replace(answer.body_mut(), Body::empty())
    {
        *answer.body_mut() = Body::from(list.collect());
    }
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let bytes = answer.body().bytes()?;
    event::decoded(bytes, kind, trail.decision.omit_managed_fields)
}

impl Call {
    /// Says something about this call in its audit event; nothing where there is none.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        if self.audit.is_some() {
            self.annotations.add(key, value);
        }
    }

    /// Who really asks, where they act as somebody else.
    pub fn original_user(&self) -> Option<&kinds::User> {
        self.impersonator.as_deref()
    }
}
