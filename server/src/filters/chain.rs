//! The life of a request in the server: one list of stages, outermost first. A request enters them in this order, until
//! one of them refuses or answers it; the response leaves through all of them in the reverse order.

use std::sync::Arc;

use api::status::Status;
use http::{HeaderValue, header};
use stdx::panic::catch_unwind;

use super::{authentication, authorization, compression, deadline, fairness, impersonation};
use crate::Server;
use crate::audit;
use crate::call::{Answer, Call, Seats, Step, status_answer, warning_header};
use crate::common::users::ANONYMOUS;
use crate::request::head::RequestHead;
use crate::request::negotiate::{self, Accepted};
use crate::routes::router;

/// One stage: what it does with the request on its way in, and with the response on its way out.
struct Stage {
    name: &'static str,
    enter: Enter,
    leave: Leave,
}

/// The way in. A stage that can decide at once does; only one that must wait is a future.
enum Enter {
    Nothing,
    /// Panics of all that follows, in both directions, become a 500.
    CatchPanics,
    /// All stages that follow, and the handler, have to end in the request's time.
    Deadline,
    Now(fn(&Server, &mut Call) -> Result<(), Status>),
    Wait(for<'a> fn(&'a Arc<Server>, &'a mut Call) -> Step<'a>),
    /// May send a response itself.
    Reply(fn(&Server, &Call) -> Option<Answer>),
    /// The end of the way in.
    Handle,
}

/// The way out. Every stage is passed, wherever the request was refused or answered.
enum Leave {
    Nothing,
    Now(fn(&Server, &mut Call, &mut Answer)),
    Wait(for<'a> fn(&'a Arc<Server>, &'a mut Call, &'a mut Answer, audit::End<'a>) -> Step<'a>),
}

impl Stage {
    const fn new(name: &'static str, enter: Enter) -> Stage {
        Stage { name, enter, leave: Leave::Nothing }
    }

    const fn on_leave(self, leave: Leave) -> Stage {
        Stage { leave, ..self }
    }
}

static STAGES: &[Stage] = &[
    // One bad request must not end the server, whichever stage it breaks.
    Stage::new("panic-guard", Enter::CatchPanics),
    // The seats of a list are held until its last byte is sent, so this wraps the body that is really sent.
    Stage::new("seats", Enter::Nothing).on_leave(Leave::Now(fairness::hold_seats)),
    // After audit, which shows responses as they are.
    Stage::new("compression", Enter::Nothing).on_leave(Leave::Now(compression::compress)),
    // The last event, with the final code; also of a request that ended before its first event.
    Stage::new("audit-response", Enter::Nothing).on_leave(Leave::Wait(complete_audit)),
    // Counts the request while it runs, and its code and duration afterwards, whatever happens to it.
    Stage::new("metrics", Enter::Now(begin_metrics)).on_leave(Leave::Now(finish_metrics)),
    // The audit ID is the same in everything that is recorded of the request, and in the headers of any response.
    Stage::new("headers", Enter::Now(set_audit_id)).on_leave(Leave::Now(add_headers)),
    // Browsers send preflight requests without credentials: they are answered before authentication.
    Stage::new("cors", Enter::Reply(answer_preflight)).on_leave(Leave::Now(add_cors_headers)),
    // Around all that may wait.
    Stage::new("deadline", Enter::Deadline),
    // A server that drains accepts nothing new, from any client.
    Stage::new("drain", Enter::Now(refuse_when_closing)),
    // Sets the user, and removes the credentials from the request.
    Stage::new("authentication", Enter::Wait(authentication::authenticate)),
    // An authenticated client counts no longer against the connections of its source.
    Stage::new("source", Enter::Now(release_source)),
    // Requests of a known user are recorded even if they are refused below.
    Stage::new("audit", Enter::Wait(begin_audit)),
    // Needs the authenticated user; authorization needs the impersonated one.
    Stage::new("impersonation", Enter::Wait(impersonation::impersonate)),
    // A seat, or a place in the queue of the user's flow: everything from here on is expensive.
    Stage::new("fairness", Enter::Wait(fairness::admit)),
    // The last stage before the handler: it sees the final user.
    Stage::new("authorization", Enter::Wait(authorization::authorize)),
    Stage::new("handler", Enter::Handle),
];

fn begin_metrics(server: &Server, call: &mut Call) -> Result<(), Status> {
    call.in_flight = Some(server.metrics.begin(&call.head.info));
    Ok(())
}

fn finish_metrics(server: &Server, call: &mut Call, answer: &mut Answer) {
    server.metrics.finish(&call.head.info, answer.status().as_u16(), call.started.elapsed());
}

fn set_audit_id(_: &Server, call: &mut Call) -> Result<(), Status> {
    call.audit.id = audit::id(&call.head);
    Ok(())
}

fn answer_preflight(server: &Server, call: &Call) -> Option<Answer> {
    server.config.cors.preflight(&call.head.method, &call.head.headers)
}

fn add_cors_headers(server: &Server, call: &mut Call, answer: &mut Answer) {
    server.config.cors.add_headers(&call.head.headers, answer.headers_mut());
}

fn refuse_when_closing(server: &Server, call: &mut Call) -> Result<(), Status> {
    let health =
        matches!(call.head.path.as_str(), "/healthz" | "/livez" | "/readyz") || call.head.path.starts_with("/readyz/");
    if *server.closing.borrow() && !health {
        return Err(Status::service_unavailable("the server is shutting down"));
    }
    Ok(())
}

fn release_source(_: &Server, call: &mut Call) -> Result<(), Status> {
    let is_known = call.caller.user.as_ref().is_some_and(|user| user.name != ANONYMOUS);
    if let Some(seat) = call.peer.seat.as_ref().filter(|_| is_known) {
        seat.release();
    }
    Ok(())
}

fn begin_audit<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> Step<'a> {
    match &server.config.audit {
        Some(audit) => audit::begin(audit, call),
        None => Step::Done(Ok(())),
    }
}

fn complete_audit<'a>(
    server: &'a Arc<Server>,
    call: &'a mut Call,
    answer: &'a mut Answer,
    end: audit::End<'a>,
) -> Step<'a> {
    match &server.config.audit {
        Some(audit) => audit::complete(audit, call, answer, end),
        None => Step::Done(Ok(())),
    }
}

/// Headers that every response has.
fn add_headers(server: &Server, call: &mut Call, answer: &mut Answer) {
    let code = answer.status().as_u16();
    let headers = answer.headers_mut();
    if let Some(directives) = &server.config.strict_transport_security {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, directives.clone());
    }
    if code == 401 && server.registry.authentication.config.passwords.is_some() {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"kubernetes-master\""));
    }
    // A handler may have set its own, and so may the server behind a proxied response.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    audit::sign(headers, &call.audit);
    fairness::sign(headers, &call.seats);
    for warning in &call.warnings {
        if let Some(value) = warning_header(warning) {
            headers.append(header::WARNING, value);
        }
    }
}

/// Runs a call through all stages. Never fails: every error becomes a response.
pub(crate) async fn handle(server: Arc<Server>, mut call: Call) -> Answer {
    // Handlers may take the headers away.
    let accepted = accepted_for_errors(&call.head);
    let mut panicked = false;
    let result = catch_unwind(std::pin::pin!(enter(&server, &mut call))).await.unwrap_or_else(|_| {
        panicked = true;
        Err(panic_status())
    });
    if panicked {
        tracing::error!(path = call.head.path, "request handler panicked");
    }
    let (mut answer, refusal) = match result {
        Ok(answer) => (answer, None),
        Err(status) => (refuse(&status, &call.seats, accepted), Some(status)),
    };
    let end = match &refusal {
        None => audit::End::Answered,
        Some(status) if panicked => audit::End::Panicked(status),
        Some(status) => audit::End::Refused(status),
    };
    let left = catch_unwind(std::pin::pin!(leave(&server, &mut call, &mut answer, end))).await;
    if left.is_err() {
        tracing::error!(path = call.head.path, "response filter panicked");
        answer = status_answer(&panic_status(), accepted);
    }
    answer
}

/// The way in, up to the deadline; all that follows runs in it.
async fn enter(server: &Arc<Server>, call: &mut Call) -> Result<Answer, Status> {
    let mut stages = STAGES.iter();
    for stage in stages.by_ref() {
        if matches!(stage.enter, Enter::Deadline) {
            break;
        }
        if let Some(answer) = run(stage, server, call).await? {
            return Ok(answer);
        }
    }
    call.timeout = deadline::timeout(&server.config.limits, &call.head)?;
    deadline::within(call.timeout, enter_rest(stages.as_slice(), server, call)).await
}

async fn enter_rest(stages: &'static [Stage], server: &Arc<Server>, call: &mut Call) -> Result<Answer, Status> {
    for stage in stages {
        if let Some(answer) = run(stage, server, call).await? {
            return Ok(answer);
        }
    }
    router::route(&server.routes, call).await
}

async fn run(stage: &Stage, server: &Arc<Server>, call: &mut Call) -> Result<Option<Answer>, Status> {
    let result = match stage.enter {
        Enter::Now(run) => run(server, call),
        Enter::Wait(run) => match run(server, call) {
            Step::Done(result) => result,
            Step::Later(wait) => wait.await,
        },
        Enter::Reply(run) => return Ok(run(server, call)),
        Enter::Nothing | Enter::CatchPanics | Enter::Deadline | Enter::Handle => Ok(()),
    };
    let log = |status: &Status| {
        tracing::debug!(stage = stage.name, code = status.code, path = call.head.path, "request refused");
    };
    result.inspect_err(log).map(|()| None)
}

/// The way out, through all stages in the reverse order.
async fn leave(server: &Arc<Server>, call: &mut Call, answer: &mut Answer, end: audit::End<'_>) {
    for stage in STAGES.iter().rev() {
        match stage.leave {
            Leave::Nothing => {}
            Leave::Now(run) => run(server, call, answer),
            Leave::Wait(run) => {
                if let Step::Later(wait) = run(server, call, answer, end) {
                    // A response cannot be refused any more.
                    let _ = wait.await;
                }
            }
        }
    }
}

/// The format of a Status that refuses the call.
fn accepted_for_errors(head: &RequestHead) -> Accepted {
    let accepted = negotiate::accept(head.header(header::ACCEPT), true);
    accepted.map_or(Accepted::JSON, |accepted| Accepted { shape: negotiate::Shape::Plain, ..accepted })
}

fn refuse(status: &Status, seats: &Seats, accepted: Accepted) -> Answer {
    match seats.too_many {
        Some(seconds) => fairness::too_many_answer(seconds),
        None => status_answer(status, accepted),
    }
}

fn panic_status() -> Status {
    Status::new(500, "InternalError", "This request caused apiserver to panic. Look in the logs for details.")
}
