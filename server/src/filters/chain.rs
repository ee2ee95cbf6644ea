//! The life of a request in the server: one list of stages, outermost first. A request enters them in this order, until
//! one of them rejects or serves it; the response leaves through all of them in the reverse order.

use std::sync::Arc;

use api::status::Status;
use http::{HeaderValue, header};
use stdx::panic::catch_unwind;

use super::{authentication, authorization, compression, deadline, fairness, fence, impersonation};
use crate::Server;
use crate::audit;
use crate::call::{Call, HttpResponse, Seats, StageResult, status_response, warning_header};
use crate::common::deadline::Deadline;
use crate::common::users::ANONYMOUS;
use crate::request::head::RequestHead;
use crate::request::negotiate::{self, Accepted};
use crate::routes::router;

/// One stage: how it processes the request on entry and the response on exit.
struct Stage {
    name: &'static str,
    enter: Enter,
    leave: Leave,
}

/// The entry of a stage. A stage that can decide immediately does; only a stage that must wait returns a future.
enum Enter {
    Nothing,
    /// Panics of all that follows, in both directions, become a 500.
    CatchPanics,
    /// All later stages, and the handler, have to finish within the request's timeout.
    Deadline,
    Now(fn(&Server, &mut Call) -> Result<(), Status>),
    Wait(for<'a> fn(&'a Arc<Server>, &'a mut Call) -> StageResult<'a>),
    /// May send a response itself.
    Reply(fn(&Server, &Call) -> Option<HttpResponse>),
    /// The innermost stage, which calls the handler.
    Handle,
}

/// The exit of a stage. The response passes every stage, wherever the request was rejected or served.
enum Leave {
    Nothing,
    Now(fn(&Server, &mut Call, &mut HttpResponse)),
    Wait(for<'a> fn(&'a Arc<Server>, &'a mut Call, &'a mut HttpResponse, audit::Completion<'a>) -> StageResult<'a>),
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
    // A panic must not end the server, whichever stage it occurs in.
    Stage::new("panic-guard", Enter::CatchPanics),
    // The seats of a list are held until its last byte is sent, so this wraps the body that is really sent.
    Stage::new("seats", Enter::Nothing).on_leave(Leave::Now(fairness::hold_seats)),
    // After audit, which records responses uncompressed.
    Stage::new("compression", Enter::Nothing).on_leave(Leave::Now(compression::compress)),
    // The last event, with the final code; also for a request that ended before its first event.
    Stage::new("audit-response", Enter::Nothing).on_leave(Leave::Wait(complete_audit)),
    // Counts the request while it runs, and its code and duration afterwards, whatever happens to it.
    Stage::new("metrics", Enter::Now(begin_metrics)).on_leave(Leave::Now(finish_metrics)),
    // The audit ID is the same in all records of the request, and in the headers of any response.
    Stage::new("headers", Enter::Now(set_audit_id)).on_leave(Leave::Now(add_headers)),
    // Browsers send preflight requests without credentials: they are served before authentication.
    Stage::new("cors", Enter::Reply(serve_preflight)).on_leave(Leave::Now(add_cors_headers)),
    // Around all that may wait.
    Stage::new("deadline", Enter::Deadline),
    // A draining server accepts no new requests.
    Stage::new("drain", Enter::Now(refuse_when_closing)),
    // Sets the user, and removes the credentials from the request.
    Stage::new("authentication", Enter::Wait(authentication::authenticate)),
    // An authenticated client counts no longer against the connections of its source.
    Stage::new("source", Enter::Now(release_source)),
    // Requests of an authenticated user are recorded even if a later stage rejects them.
    Stage::new("audit", Enter::Wait(begin_audit)),
    // Needs the authenticated user; authorization needs the impersonated user.
    Stage::new("impersonation", Enter::Wait(impersonation::impersonate)),
    // A seat, or a slot in the queue of the user's flow: everything from here on is expensive.
    Stage::new("fairness", Enter::Wait(fairness::admit)),
    // It sees the final user.
    Stage::new("authorization", Enter::Wait(authorization::authorize)),
    // The last stage before the handler: it restricts a header of requests that are allowed otherwise.
    Stage::new("fence", Enter::Wait(fence::authorize)),
    Stage::new("handler", Enter::Handle),
];

fn begin_metrics(server: &Server, call: &mut Call) -> Result<(), Status> {
    call.in_flight = Some(server.metrics.begin(&call.head.info));
    Ok(())
}

fn finish_metrics(server: &Server, call: &mut Call, response: &mut HttpResponse) {
    server.metrics.finish(&call.head.info, response.status().as_u16(), call.started.elapsed());
}

fn set_audit_id(_: &Server, call: &mut Call) -> Result<(), Status> {
    call.audit.id = audit::id(&call.head);
    Ok(())
}

fn serve_preflight(server: &Server, call: &Call) -> Option<HttpResponse> {
    server.config.cors.preflight(&call.head.method, &call.head.headers)
}

fn add_cors_headers(server: &Server, call: &mut Call, response: &mut HttpResponse) {
    server.config.cors.add_headers(&call.head.headers, response.headers_mut());
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

fn begin_audit<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    match &server.config.audit {
        Some(audit) => audit::begin(audit, call),
        None => StageResult::Done(Ok(())),
    }
}

fn complete_audit<'a>(
    server: &'a Arc<Server>,
    call: &'a mut Call,
    response: &'a mut HttpResponse,
    end: audit::Completion<'a>,
) -> StageResult<'a> {
    match &server.config.audit {
        Some(audit) => audit::complete(audit, call, response, end),
        None => StageResult::Done(Ok(())),
    }
}

/// Headers that every response has.
fn add_headers(server: &Server, call: &mut Call, response: &mut HttpResponse) {
    let code = response.status().as_u16();
    let headers = response.headers_mut();
    if let Some(directives) = &server.config.strict_transport_security {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, directives.clone());
    }
    if code == 401 && server.registry.authentication.config.passwords.is_some() {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"kubernetes-master\""));
    }
    // A handler may have set its own header, and so may the target of a proxied request.
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
pub(crate) async fn handle(server: Arc<Server>, mut call: Call) -> HttpResponse {
    // Handlers may remove the headers.
    let accepted = accepted_for_errors(&call.head);
    let mut panicked = false;
    let result = catch_unwind(std::pin::pin!(enter(&server, &mut call))).await.unwrap_or_else(|_| {
        panicked = true;
        Err(panic_status())
    });
    if panicked {
        tracing::error!(path = call.head.path, "request handler panicked");
    }
    let (mut response, refusal) = match result {
        Ok(response) => (response, None),
        Err(status) => (refuse(&status, &call.seats, accepted), Some(status)),
    };
    let end = match &refusal {
        None => audit::Completion::Answered,
        Some(status) if panicked => audit::Completion::Panicked(status),
        Some(status) => audit::Completion::Refused(status),
    };
    let left = catch_unwind(std::pin::pin!(leave(&server, &mut call, &mut response, end))).await;
    if left.is_err() {
        tracing::error!(path = call.head.path, "response filter panicked");
        response = status_response(&panic_status(), accepted);
    }
    response
}

/// Enters the stages up to the deadline; the later stages run within it.
async fn enter(server: &Arc<Server>, call: &mut Call) -> Result<HttpResponse, Status> {
    let mut stages = STAGES.iter();
    for stage in stages.by_ref() {
        if matches!(stage.enter, Enter::Deadline) {
            break;
        }
        if let Some(response) = run(stage, server, call).await? {
            return Ok(response);
        }
    }
    call.timeout = deadline::timeout(&server.config.limits, &call.head)?;
    call.deadline = Deadline::after(call.timeout);
    deadline::within(call.timeout, enter_rest(stages.as_slice(), server, call)).await
}

async fn enter_rest(stages: &'static [Stage], server: &Arc<Server>, call: &mut Call) -> Result<HttpResponse, Status> {
    for stage in stages {
        if let Some(response) = run(stage, server, call).await? {
            return Ok(response);
        }
    }
    router::route(&server.routes, call).await
}

async fn run(stage: &Stage, server: &Arc<Server>, call: &mut Call) -> Result<Option<HttpResponse>, Status> {
    let result = match stage.enter {
        Enter::Now(run) => run(server, call),
        Enter::Wait(run) => match run(server, call) {
            StageResult::Done(result) => result,
            StageResult::Later(wait) => wait.await,
        },
        Enter::Reply(run) => return Ok(run(server, call)),
        Enter::Nothing | Enter::CatchPanics | Enter::Deadline | Enter::Handle => Ok(()),
    };
    let log = |status: &Status| {
        tracing::debug!(stage = stage.name, code = status.code, path = call.head.path, "request refused");
    };
    result.inspect_err(log).map(|()| None)
}

/// Leaves all stages in the reverse order.
async fn leave(server: &Arc<Server>, call: &mut Call, response: &mut HttpResponse, end: audit::Completion<'_>) {
    for stage in STAGES.iter().rev() {
        match stage.leave {
            Leave::Nothing => {}
            Leave::Now(run) => run(server, call, response),
            Leave::Wait(run) => {
                if let StageResult::Later(wait) = run(server, call, response, end) {
                    // A response cannot be rejected any more.
                    let _ = wait.await;
                }
            }
        }
    }
}

/// The format of the Status of a rejected call.
fn accepted_for_errors(head: &RequestHead) -> Accepted {
    let accepted = negotiate::accept(head.header(header::ACCEPT), true);
    accepted.map_or(Accepted::JSON, |accepted| Accepted { shape: negotiate::Representation::Plain, ..accepted })
}

fn refuse(status: &Status, seats: &Seats, accepted: Accepted) -> HttpResponse {
    match seats.too_many {
        Some(seconds) => fairness::too_many_requests(seconds),
        None => status_response(status, accepted),
    }
}

fn panic_status() -> Status {
    Status::new(500, "InternalError", "This request caused apiserver to panic. Look in the logs for details.")
}
