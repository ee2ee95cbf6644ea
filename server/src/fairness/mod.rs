//! Priority and fairness: who gets a seat when more is asked for than the server can do at once. Schemas
//! sort requests into flows and levels; a level shares its seats fairly between its flows, and lends what
//! it does not use. A request that finds a free seat costs a lock and no future.

mod changes;
mod crowd;
mod demand;
mod dropped;
pub mod dump;
mod hand;
mod level;
mod matching;
mod metrics;
mod plan;
mod queues;
mod width;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::status::Status;
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Server;
use crate::call::{Answer, Call, text};
use crate::filters::chain::Step;
use crate::request::body::Body;
use crate::request::limits::{Counted, Inflight, is_long_running};
pub use changes::Changes;
use level::Entry;
use matching::Digest;
use metrics::FlowMetrics;
use plan::{Distinguisher, Plan, Priority, Schema};

pub use level::Seat;

/// Seats are lent anew this often, while requests come.
const ADJUSTMENT: Duration = Duration::from_secs(10);
/// A request waits for a seat for at most this part of the time that it has.
const PATIENCE: u32 = 4;

pub struct Fairness {
    plan: ArcSwap<Plan>,
    metrics: FlowMetrics,
    inflight: Inflight,
    /// Nobody can choose names that share a queue.
    salt: u64,
    started: Instant,
    /// Milliseconds since `started`.
    adjusted: AtomicU64,
}

/// What a call holds while it runs.
pub enum Held {
    Seat(Seat),
    Counted(Counted),
}

/// Which objects decided about a call; answers name them.
#[derive(Clone)]
pub struct Flow {
    schema: Option<HeaderValue>,
    level: Option<HeaderValue>,
}

impl Fairness {
    pub fn new(metrics: &crate::metrics::Metrics) -> Fairness {
        Fairness {
            plan: ArcSwap::from_pointee(Plan::empty()),
            metrics: FlowMetrics::new(metrics.registry()),
            inflight: Inflight::default(),
            salt: crate::common::ids::below(u64::MAX),
            started: Instant::now(),
            adjusted: AtomicU64::new(0),
        }
    }

    /// Compiles the objects as they are now.
    pub fn reload(&self, server: &Server) {
        let limits = &server.config.limits;
        let total = limits.max_requests_inflight.saturating_add(limits.max_mutating_requests_inflight);
        let (schemas, levels) = (server.objects("flowschemas", ""), server.objects("prioritylevelconfigurations", ""));
        let plan = self.plan.load().compile(&schemas, &levels, total, &self.metrics);
        self.plan.store(Arc::new(plan));
    }

    /// Brings the gauges up to date before they are read.
    pub fn show(&self) {
        self.metrics.show(&self.plan.load());
    }

    /// Lends seats anew once the period is over. Only requests that come or wait are here: an idle server
    /// does nothing.
    fn adjust(&self, plan: &Plan, now: Instant) {
        let millis = now.saturating_duration_since(self.started).as_millis() as u64;
        let last = self.adjusted.load(Ordering::Relaxed);
        let due = millis >= last + ADJUSTMENT.as_millis() as u64;
        if due && self.adjusted.compare_exchange(last, millis, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            lend(plan, now);
        }
    }

    /// When seats are lent anew for the next time.
    fn next_adjustment(&self) -> Instant {
        self.started + Duration::from_millis(self.adjusted.load(Ordering::Relaxed)) + ADJUSTMENT
    }

    fn flow_hash(&self, schema: &Schema, call: &Call) -> u64 {
        let flow = distinguisher(schema, call);
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.salt, &schema.name, flow))
    }
}

/// What tells the flow of a call from others of its schema.
fn distinguisher<'a>(schema: &Schema, call: &'a Call) -> &'a str {
    match schema.distinguisher {
        Distinguisher::None => "",
        Distinguisher::User => call.user_name(),
        Distinguisher::Namespace => &call.info.namespace,
    }
}

/// A call that has to wait, for whoever looks at the queues.
fn about(server: &Server, schema: &Schema, call: &Call) -> dump::About {
    let info = &call.info;
    let api_version =
        if info.group.is_empty() { info.version.clone() } else { format!("{}/{}", info.group, info.version) };
    let details = [
        call.user_name(),
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
        flow: distinguisher(schema, call).to_string(),
        arrived: api::time::format_micros(server.config.clock.timestamp()).to_string(),
        details: details.map(str::to_string),
    }
}

fn lend(plan: &Plan, now: Instant) {
    let levels: Vec<_> = plan.levels.iter().filter_map(|priority| priority.level.as_ref()).collect();
    let claims: Vec<_> = levels.iter().map(|level| level.claim(now)).collect();
    for (level, seats) in levels.iter().zip(demand::allocate(plan.total, &claims)) {
        level.set_limit(now, seats.max(1));
    }
}

/// Compiles at each change of a schema or a level, until the server drains.
pub async fn follow(server: Arc<Server>) {
    let Some(mut changes) = Changes::of(&server) else { return };
    server.fairness.reload(&server);
    while changes.next().await {
        server.fairness.reload(&server);
    }
}

/// The stage: a seat now, a seat later, or 429.
pub fn admit<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> Step<'a> {
    if !server.config.limits.fairness {
        return Step::Done(count(server, call));
    }
    if is_long_running(&call.info) && call.info.verb != "watch" {
        return Step::Done(Ok(()));
    }
    let plan = server.fairness.plan.load();
    let Some(at) = plan.find(&Digest::new(&call.info, call.user.as_deref())) else { return Step::Done(Ok(())) };
    let (schema, priority) = plan.at(at);
    call.flow = Some(Flow { schema: schema.uid.clone(), level: priority.uid.clone() });
    let Some(level) = &priority.level else {
        schema.metrics.dispatched.inc();
        return Step::Done(Ok(()));
    };
    let flow = server.fairness.flow_hash(schema, call);
    if level.steps_aside(flow) {
        call.turns = Some(level.turns().clone());
        let plan = arc_swap::Guard::into_inner(plan);
        return Step::Later(Box::pin(async move {
            if let Some(turns) = &call.turns {
                turns.next().await;
            }
            match take(server, call, &plan, at, flow) {
                Taken::Done(result) => result,
                Taken::Later(seat, told) => wait(server, call, seat, told, (plan, at)).await,
            }
        }));
    }
    match take(server, call, &plan, at, flow) {
        Taken::Done(result) => Step::Done(result),
        Taken::Later(seat, told) => {
            let plan = arc_swap::Guard::into_inner(plan);
            Step::Later(Box::pin(wait(server, call, seat, told, (plan, at))))
        }
    }
}

enum Taken {
    Done(Result<(), Status>),
    Later(Seat, oneshot::Receiver<()>),
}

/// A seat, a place in the queue of a flow, or a refusal.
fn take(server: &Server, call: &mut Call, plan: &Plan, at: usize, flow: u64) -> Taken {
    let (schema, priority) = plan.at(at);
    let Some(level) = &priority.level else { return Taken::Done(Ok(())) };
    let now = Instant::now();
    server.fairness.adjust(plan, now);
    let seats = width::seats(server, call, level.bounds().nominal);
    match level.enter(now, flow, seats, || about(server, schema, call)) {
        Entry::Run(seat) => {
            schema.metrics.dispatched.inc();
            call.held = Some(Held::Seat(seat));
            Taken::Done(Ok(()))
        }
        Entry::Reject(reason) => {
            let seconds = level.refuse(server.now(), true);
            Taken::Done(Err(reject(server, call, (schema, priority), reason.text(), seconds)))
        }
        Entry::Wait(seat, told) => Taken::Later(seat, told),
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
    let got = tokio::time::timeout(time, told_or_lent(&server.fairness, &plan, &mut told)).await;
    schema.metrics.waited.observe(began.elapsed().as_secs_f64());
    if !matches!(got, Ok(Ok(()))) {
        seat.give_up();
        let seconds = priority.level.as_ref().map_or(1, |level| level.refuse(server.now(), false));
        return Err(reject(server, call, (schema, priority), "time-out", seconds));
    }
    seat.begin();
    schema.metrics.dispatched.inc();
    call.held = Some(Held::Seat(seat));
    Ok(())
}

/// Seats that were lent to others come back while somebody waits, also where nobody else asks any more.
async fn told_or_lent(
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
    let entered = server.fairness.inflight.enter(&server.config.limits, &call.info, call.user.as_deref());
    match entered {
        Ok(counted) => {
            call.held = counted.map(Held::Counted);
            Ok(())
        }
        Err(_) => Err(too_many(call, 1)),
    }
}

fn reject(
    server: &Server,
    call: &mut Call,
    (schema, priority): (&Schema, &Priority),
    reason: &str,
    seconds: u32,
) -> Status {
    server.fairness.metrics.reject(&priority.name, &schema.name, reason);
    too_many(call, seconds)
}

const TOO_MANY: &str = "Too many requests, please try again later.";

fn too_many(call: &mut Call, seconds: u32) -> Status {
    call.too_many = Some(seconds);
    Status::too_many_requests(TOO_MANY, seconds)
}

/// Upstream refuses with plain text here, and clients know it by its header.
pub fn too_many_answer(seconds: u32) -> Answer {
    let mut answer = text(429, &format!("{TOO_MANY}\n"));
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

static SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Every answer that fairness has seen says which objects decided.
pub fn sign(headers: &mut HeaderMap, call: &Call) {
    let Some(flow) = &call.flow else { return };
    if let Some(uid) = &flow.schema {
        headers.insert(&SCHEMA_UID, uid.clone());
    }
    if let Some(uid) = &flow.level {
        headers.insert(&LEVEL_UID, uid.clone());
    }
}

/// A list is made while it is sent: its seats are held until then. Everything else is made by now. What a crowd
/// gets is sent in turns too.
pub fn hold(answer: &mut Answer, call: &mut Call) {
    if let Some(turns) = call.turns.take() {
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = body.paced(turns);
    }
    let Some(held) = call.held.take() else { return };
    if answer.body().is_list() {
        let body = std::mem::replace(answer.body_mut(), Body::empty());
        *answer.body_mut() = Body::held(body, Box::new(held));
    }
}

#[cfg(test)]
mod tests;
