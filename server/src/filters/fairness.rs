//! The stage of priority and fairness: a request gets a seat, waits in a queue, or is rejected.

use std::sync::Arc;

use api::status::Status;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Server;
use crate::call::{Call, Caller, HttpResponse, Seats, StageResult, text};
use crate::fairness::level::Dispatch;
use crate::fairness::matching::RequestDigest;
use crate::fairness::plan::{Distinguisher, Plan, Priority, Schema};
use crate::fairness::{ConcurrencyGuard, Fairness, Flow, Seat, dump, width};
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::limits::is_long_running;

/// A request waits for a seat for at most this part of the time that it has.
const PATIENCE: u32 = 4;

/// The stage: a seat now, a seat later, or 429.
pub(super) fn admit<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    if !server.config.limits.fairness {
        return StageResult::Done(count(server, call));
    }
    if is_long_running(&call.head.info) && call.head.info.verb != "watch" {
        return StageResult::Done(Ok(()));
    }
    let plan = server.fairness.plan.load();
    let Some(at) = plan.find(&RequestDigest::new(&call.head.info, call.caller.user.as_deref())) else {
        return StageResult::Done(Ok(()));
    };
    let (schema, priority) = plan.at(at);
    call.seats.flow = Some(Flow { schema: schema.uid.clone(), level: priority.uid.clone() });
    let Some(level) = &priority.level else {
        schema.metrics.dispatched.inc();
        return StageResult::Done(Ok(()));
    };
    let flow = server.fairness.flow_hash(schema, distinguisher(schema, &call.head, &call.caller));
    if level.should_yield(flow) {
        call.seats.turns = Some(level.turns().clone());
        let plan = arc_swap::Guard::into_inner(plan);
        return StageResult::Later(Box::pin(async move {
            if let Some(turns) = &call.seats.turns {
                turns.next().await;
            }
            match take(server, call, &plan, at, flow) {
                Admission::Done(result) => result,
                Admission::Later(seat, told) => wait(server, call, seat, told, (plan, at)).await,
            }
        }));
    }
    match take(server, call, &plan, at, flow) {
        Admission::Done(result) => StageResult::Done(result),
        Admission::Later(seat, told) => {
            let plan = arc_swap::Guard::into_inner(plan);
            StageResult::Later(Box::pin(wait(server, call, seat, told, (plan, at))))
        }
    }
}

enum Admission {
    Done(Result<(), Status>),
    Later(Seat, oneshot::Receiver<()>),
}

/// A seat, a slot in the queue of a flow, or a rejection.
fn take(server: &Server, call: &mut Call, plan: &Plan, at: usize, flow: u64) -> Admission {
    let (schema, priority) = plan.at(at);
    let Some(level) = &priority.level else { return Admission::Done(Ok(())) };
    let now = Instant::now();
    server.fairness.adjust(plan, now);
    let seats =
        width::seats(&server.registry.storage.resources, (&call.head.info, &call.head.query), level.bounds().nominal);
    match level.enter(now, flow, seats, || describe_request(server, schema, &call.head, &call.caller)) {
        Dispatch::Run(seat) => {
            schema.metrics.dispatched.inc();
            call.seats.held = Some(ConcurrencyGuard::Seat(seat));
            Admission::Done(Ok(()))
        }
        Dispatch::Reject(reason) => {
            let seconds = level.refuse(server.now(), true);
            Admission::Done(Err(reject(server, &mut call.seats, (schema, priority), reason.text(), seconds)))
        }
        Dispatch::Wait(seat, told) => Admission::Later(seat, told),
    }
}

async fn wait(
    server: &Server,
    call: &mut Call,
    mut seat: Seat,
    mut told: oneshot::Receiver<()>,
    (plan, at): (Arc<Plan>, usize),
) -> Result<(), Status> {
    let (schema, priority) = plan.at(at);
    let began = Instant::now();
    let time = call.timeout.unwrap_or(server.config.limits.request_timeout) / PATIENCE;
    let got = tokio::time::timeout(time, wait_for_seat(&server.fairness, &plan, &mut told)).await;
    schema.metrics.waited.observe(began.elapsed().as_secs_f64());
    if !matches!(got, Ok(Ok(()))) {
        seat.time_out();
        let seconds = priority.level.as_ref().map_or(1, |level| level.refuse(server.now(), false));
        return Err(reject(server, &mut call.seats, (schema, priority), "time-out", seconds));
    }
    seat.begin();
    schema.metrics.dispatched.inc();
    call.seats.held = Some(ConcurrencyGuard::Seat(seat));
    Ok(())
}

/// Waits for a seat. Lent seats return while a request waits, even if no other request arrives.
async fn wait_for_seat(
    fairness: &Fairness,
    plan: &Plan,
    told: &mut oneshot::Receiver<()>,
) -> Result<(), oneshot::error::RecvError> {
    loop {
        tokio::select! {
            biased;
            got = &mut *told => return got,
            () = tokio::time::sleep_until(fairness.next_adjustment()) => fairness.adjust(plan, Instant::now()),
        }
    }
}

/// Without fairness: counts a request in flight, or rejects it with 429.
fn count(server: &Server, call: &mut Call) -> Result<(), Status> {
    let entered = server.fairness.inflight.enter(&server.config.limits, &call.head.info, call.caller.user.as_deref());
    match entered {
        Ok(counted) => {
            call.seats.held = counted.map(ConcurrencyGuard::Inflight);
            Ok(())
        }
        Err(_) => Err(too_many(&mut call.seats, 1)),
    }
}

fn reject(
    server: &Server,
    seats: &mut Seats,
    (schema, priority): (&Schema, &Priority),
    reason: &str,
    seconds: u32,
) -> Status {
    server.fairness.metrics.reject(&priority.name, &schema.name, reason);
    too_many(seats, seconds)
}

const TOO_MANY: &str = "Too many requests, please try again later.";

fn too_many(seats: &mut Seats, seconds: u32) -> Status {
    seats.too_many = Some(seconds);
    Status::too_many_requests(TOO_MANY, seconds)
}

/// Upstream rejects with plain text here; clients detect the rejection by its header.
pub(crate) fn too_many_requests(seconds: u32) -> HttpResponse {
    let mut response = text(429, &format!("{TOO_MANY}\n"));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

static SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Adds the UIDs of the schema and the level to the headers.
pub(super) fn sign(headers: &mut HeaderMap, seats: &Seats) {
    let Some(flow) = &seats.flow else { return };
    if let Some(uid) = &flow.schema {
        headers.insert(&SCHEMA_UID, uid.clone());
    }
    if let Some(uid) = &flow.level {
        headers.insert(&LEVEL_UID, uid.clone());
    }
}

/// A list is produced while it is sent, so its seats are held until the end. All other responses are complete by now.
/// Responses to a flow that crowds its level are also sent in turns.
pub(crate) fn hold_seats(_: &Server, call: &mut Call, response: &mut HttpResponse) {
    if let Some(turns) = call.seats.turns.take() {
        let body = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = body.paced(turns);
    }
    let Some(held) = call.seats.held.take() else { return };
    if response.body().is_list() {
        let body = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = Body::held(body, Box::new(held));
    }
}

/// The value that distinguishes the flow of a call from others of its schema.
fn distinguisher<'a>(schema: &Schema, head: &'a RequestHead, caller: &'a Caller) -> &'a str {
    match schema.distinguisher {
        Distinguisher::None => "",
        Distinguisher::User => caller.name(),
        Distinguisher::Namespace => &head.info.namespace,
    }
}

/// The description of a waiting call, for dumps of the queues.
fn describe_request(server: &Server, schema: &Schema, head: &RequestHead, caller: &Caller) -> dump::WaitingRequest {
    let info = &head.info;
    let api_version =
        if info.group.is_empty() { info.version.clone() } else { format!("{}/{}", info.group, info.version) };
    let details = [
        caller.name(),
        info.verb,
        &info.path,
        &info.namespace,
        &info.name,
        &api_version,
        &info.resource,
        &info.subresource,
    ];
    dump::WaitingRequest {
        schema: schema.name.clone(),
        flow: distinguisher(schema, head, caller).to_string(),
        arrived: api::time::format_micros(server.config.clock.now()).to_string(),
        details: details.map(str::to_string),
    }
}

#[cfg(test)]
mod tests;
