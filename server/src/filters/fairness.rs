//! The stage of priority and fairness: a request gets a seat, waits in a queue, or is refused.

use std::sync::Arc;

use api::status::Status;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Server;
use crate::call::{Answer, Call, Caller, Seats, Step, text};
use crate::fairness::level::Entry;
use crate::fairness::matching::Digest;
use crate::fairness::plan::{Distinguisher, Plan, Priority, Schema};
use crate::fairness::{Fairness, Flow, Held, Seat, dump, width};
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::limits::is_long_running;

/// A request waits for a seat for at most this part of the time that it has.
const PATIENCE: u32 = 4;

/// The stage: a seat now, a seat later, or 429.
pub(super) fn admit<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> Step<'a> {
    if !server.config.limits.fairness {
        return Step::Done(count(server, call));
    }
    if is_long_running(&call.head.info) && call.head.info.verb != "watch" {
        return Step::Done(Ok(()));
    }
    let plan = server.fairness.plan.load();
    let Some(at) = plan.find(&Digest::new(&call.head.info, call.caller.user.as_deref())) else {
        return Step::Done(Ok(()));
    };
    let (schema, priority) = plan.at(at);
    call.seats.flow = Some(Flow { schema: schema.uid.clone(), level: priority.uid.clone() });
    let Some(level) = &priority.level else {
        schema.metrics.dispatched.inc();
        return Step::Done(Ok(()));
    };
    let flow = server.fairness.flow_hash(schema, distinguisher(schema, &call.head, &call.caller));
    if level.steps_aside(flow) {
        call.seats.turns = Some(level.turns().clone());
        let plan = arc_swap::Guard::into_inner(plan);
        return Step::Later(Box::pin(async move {
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
        Admission::Done(result) => Step::Done(result),
        Admission::Later(seat, told) => {
            let plan = arc_swap::Guard::into_inner(plan);
            Step::Later(Box::pin(wait(server, call, seat, told, (plan, at))))
        }
    }
}

enum Admission {
    Done(Result<(), Status>),
    Later(Seat, oneshot::Receiver<()>),
}

/// A seat, a place in the queue of a flow, or a refusal.
fn take(server: &Server, call: &mut Call, plan: &Plan, at: usize, flow: u64) -> Admission {
    let (schema, priority) = plan.at(at);
    let Some(level) = &priority.level else { return Admission::Done(Ok(())) };
    let now = Instant::now();
    server.fairness.adjust(plan, now);
    let seats =
        width::seats(&server.registry.storage.resources, (&call.head.info, &call.head.query), level.bounds().nominal);
    match level.enter(now, flow, seats, || about(server, schema, &call.head, &call.caller)) {
        Entry::Run(seat) => {
            schema.metrics.dispatched.inc();
            call.seats.held = Some(Held::Seat(seat));
            Admission::Done(Ok(()))
        }
        Entry::Reject(reason) => {
            let seconds = level.refuse(server.now(), true);
            Admission::Done(Err(reject(server, &mut call.seats, (schema, priority), reason.text(), seconds)))
        }
        Entry::Wait(seat, told) => Admission::Later(seat, told),
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
        seat.give_up();
        let seconds = priority.level.as_ref().map_or(1, |level| level.refuse(server.now(), false));
        return Err(reject(server, &mut call.seats, (schema, priority), "time-out", seconds));
    }
    seat.begin();
    schema.metrics.dispatched.inc();
    call.seats.held = Some(Held::Seat(seat));
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

/// Without fairness: a place among the requests under way, or 429.
fn count(server: &Server, call: &mut Call) -> Result<(), Status> {
    let entered = server.fairness.inflight.enter(&server.config.limits, &call.head.info, call.caller.user.as_deref());
    match entered {
        Ok(counted) => {
            call.seats.held = counted.map(Held::Counted);
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

/// Upstream refuses with plain text here, and clients know it by its header.
pub(crate) fn too_many_answer(seconds: u32) -> Answer {
    let mut answer = text(429, &format!("{TOO_MANY}\n"));
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
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

/// A list is made while it is sent: its seats are held until then. Everything else is made by now. What a crowd
/// gets is sent in turns too.
pub(crate) fn hold_seats(_: &Server, call: &mut Call, answer: &mut Answer) {
    if let Some(turns) = call.seats.turns.take() {
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = body.paced(turns);
    }
    let Some(held) = call.seats.held.take() else { return };
    if answer.body().is_list() {
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = Body::held(body, Box::new(held));
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
fn about(server: &Server, schema: &Schema, head: &RequestHead, caller: &Caller) -> dump::About {
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
    dump::About {
        schema: schema.name.clone(),
        flow: distinguisher(schema, head, caller).to_string(),
        arrived: api::time::format_micros(server.config.clock.now()).to_string(),
        details: details.map(str::to_string),
    }
}

#[cfg(test)]
mod tests;
