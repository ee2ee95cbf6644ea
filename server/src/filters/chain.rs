//! The way of a request through the server, outermost stage first. A stage lets the call pass, or ends
//! it with a Status. Later stages may rely on what earlier ones have set.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use api::status::Status;
use http::{HeaderValue, header};

use super::impersonation;
use crate::call::{Answer, Call, status_answer, warning_header};
use crate::request::limits;
use crate::request::negotiate::{self, Accepted};
use crate::routes::router;
use crate::{Server, audit, authentication, authorization, fairness};

/// A stage before the handler.
struct Stage {
    name: &'static str,
    run: Run,
}

/// A stage that can decide at once does; only one that must wait for somebody is a future.
#[derive(Clone, Copy)]
pub enum Run {
    Now(fn(&Server, &mut Call) -> Result<(), Status>),
    Wait(for<'a> fn(&'a Arc<Server>, &'a mut Call) -> Step<'a>),
}

/// The first answer of a stage that may have to wait: most calls need no future at all.
pub enum Step<'a> {
    Done(Result<(), Status>),
    Later(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>),
}

/// Panics are caught around all of this (see `handle`), and the request's path has been read: both come
/// first because every stage may fail and every stage asks what is wanted. Audit and fairness have their
/// place between authentication and authorization.
static STAGES: &[Stage] = &[
    // A server that drains takes nothing new, whoever asks.
    Stage { name: "drain", run: Run::Now(refuse_when_closing) },
    // Who it is; the credentials are gone from the request after this.
    Stage { name: "authentication", run: Run::Wait(authentication::authenticate) },
    // A client that is known counts no longer against the connections of its source.
    Stage { name: "source", run: Run::Now(release_source) },
    // Whoever is known is told of, whatever comes of the request.
    Stage { name: "audit", run: Run::Wait(audit::begin) },
    // Whom they act as: decided by who they are, and decides what they may.
    Stage { name: "impersonation", run: Run::Wait(impersonation::impersonate) },
    // A seat among those who are served, or a place in their flow's queue: what comes now costs something.
    Stage { name: "fairness", run: Run::Wait(fairness::admit) },
    // Whether they may.
    Stage { name: "authorization", run: Run::Wait(authorization::authorize) },
];

fn refuse_when_closing(server: &Server, call: &mut Call) -> Result<(), Status> {
    let health = matches!(call.path.as_str(), "/healthz" | "/livez" | "/readyz") || call.path.starts_with("/readyz/");
    if *server.closing.borrow() && !health {
        return Err(Status::service_unavailable("the server is shutting down"));
    }
    Ok(())
}

fn release_source(_: &Server, call: &mut Call) -> Result<(), Status> {
    let is_known = call.user.as_ref().is_some_and(|user| user.name != authentication::anonymous::NAME);
    if let Some(seat) = call.peer.seat.as_ref().filter(|_| is_known) {
        seat.release();
    }
    Ok(())
}

/// Runs a call through the chain and the handler. Never fails: every error is an answer.
pub async fn handle(server: Arc<Server>, mut call: Call) -> Answer {
    let accepted =
        negotiate::accept(call.header(header::ACCEPT), true).map(|a| Accepted { shape: negotiate::Shape::Plain, ..a });
    let accepted = accepted.unwrap_or(Accepted::JSON);
    let _running = server.metrics.begin(&call);
    call.audit_id = audit::id(&call);
    let result = match server.config.cors.preflight(&call) {
        Some(answer) => Ok(answer),
        None => run(&server, &mut call).await,
    };
    let (mut answer, refusal) = match result {
        Ok(answer) => (answer, None),
        Err(status) => (refused(&status, &call, accepted), Some(status)),
    };
    finish(&mut answer, &server, &call);
    server.metrics.finish(&call, answer.status().as_u16());
    if server.config.audit.is_some() {
        audit::complete(&server, &mut call, &mut answer, end(refusal.as_ref())).await;
    }
    crate::request::compress::maybe(&mut answer, &call);
    fairness::hold(&mut answer, &mut call);
    answer
}

/// The deadline is around all stages: whoever waits in one of them waits in its time.
async fn run(server: &Arc<Server>, call: &mut Call) -> Result<Answer, Status> {
    call.timeout = limits::timeout(&server.config.limits, call)?;
    limits::within(call.timeout, guarded(server, call)).await
}

fn end(refusal: Option<&Status>) -> audit::End<'_> {
    match refusal {
        None => audit::End::Answered,
        Some(status) if status.message == PANICKED => audit::End::Panicked(status),
        Some(status) => audit::End::Refused(status),
    }
}

fn refused(status: &Status, call: &Call, accepted: Accepted) -> Answer {
    match call.too_many {
        Some(seconds) => fairness::too_many_answer(seconds),
        None => status_answer(status, accepted),
    }
}

async fn run_stages(server: &Arc<Server>, call: &mut Call) -> Result<(), Status> {
    for stage in STAGES {
        run_stage(stage.run, server, call).await.inspect_err(|status| {
            tracing::debug!(stage = stage.name, code = status.code, path = call.path, "refused");
        })?;
    }
    Ok(())
}

async fn run_stage(run: Run, server: &Arc<Server>, call: &mut Call) -> Result<(), Status> {
    match run {
        Run::Now(run) => run(server, call),
        Run::Wait(run) => match run(server, call) {
            Step::Done(result) => result,
            Step::Later(wait) => wait.await,
        },
    }
}

const PANICKED: &str = "This request caused apiserver to panic. Look in the logs for details.";

/// One bad request must not take the server with it, whichever stage it breaks.
async fn guarded(server: &Arc<Server>, call: &mut Call) -> Result<Answer, Status> {
    let all = async {
        run_stages(server, call).await?;
        router::route(server, call).await
    };
    let result = CatchUnwind { inner: std::pin::pin!(all) }.await;
    result.unwrap_or_else(|()| {
        tracing::error!(path = call.path, "the request caused a panic");
        Err(Status::new(500, "InternalError", PANICKED))
    })
}

struct CatchUnwind<'a, F> {
    inner: Pin<&'a mut F>,
}

impl<F: Future> Future for CatchUnwind<'_, F> {
    type Output = Result<F::Output, ()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let inner = self.inner.as_mut();
        match std::panic::catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => std::task::Poll::Ready(Err(())),
        }
    }
}

/// Headers that every answer has.
fn finish(answer: &mut Answer, server: &Server, call: &Call) {
    let code = answer.status().as_u16();
    let headers = answer.headers_mut();
    server.config.cors.add_headers(call, headers);
    if let Some(directives) = &server.config.strict_transport_security {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, directives.clone());
    }
    if code == 401 && server.auth.passwords.is_some() {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"kubernetes-master\""));
    }
    // A handler that knows better, or a proxied answer, has its own.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    audit::sign(headers, call);
    fairness::sign(headers, call);
    for warning in &call.warnings {
        if let Some(value) = warning_header(warning) {
            headers.append(header::WARNING, value);
        }
    }
}
