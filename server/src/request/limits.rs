//! Bounds on what one request and one connection may take: time, and, where fairness is off, a place among
//! the requests under way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use api::status::Status;
use kinds::User;

use crate::call::Call;
use crate::http::serve::PATIENCE;
use crate::request::info::RequestInfo;
use crate::request::sources::SourceLimits;

/// What the flags say; the defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Limits {
    pub request_timeout: Duration,
    /// A watch that names no timeout gets between this and twice of it.
    pub min_request_timeout: Duration,
    pub max_requests_inflight: u32,
    pub max_mutating_requests_inflight: u32,
    /// Priority and fairness share out the sum of the two; without it each counts for itself.
    pub fairness: bool,
    pub http2_max_streams: u32,
    /// How likely a request over HTTP/2 ends its connection, so that clients spread over servers.
    pub goaway_chance: f64,
    /// How long the server goes on serving, not ready any more, after it was told to end.
    pub shutdown_delay: Duration,
    /// A client that has not finished its handshake, or then its first request, in this time is gone.
    pub first_request_timeout: Duration,
    /// The most connections of clients that are not known yet.
    pub unknown_connections: SourceLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            fairness: true,
            http2_max_streams: 100,
            goaway_chance: 0.0,
            shutdown_delay: Duration::ZERO,
            first_request_timeout: PATIENCE,
            unknown_connections: SourceLimits { total: 8192, per_source: 1024 },
        }
    }
}

/// Requests that go on until one side has enough: they have no deadline, and no place is counted for them.
pub fn is_long_running(info: &RequestInfo) -> bool {
    let streams = ["attach", "exec", "proxy", "log", "portforward"];
    info.verb == "watch"
        || (info.is_resource && streams.contains(&info.subresource.as_str()))
        || (!info.is_resource && info.path.starts_with("/debug/pprof/"))
}

/// How long this call may take; None for one that has no deadline.
pub fn timeout(limits: &Limits, call: &Call) -> Result<Option<Duration>, Status> {
    if is_long_running(&call.info) {
        return Ok(None);
    }
    allotted(call.query.get("timeout"), limits.request_timeout).map(Some)
}

/// A client may ask for less than there is, not for more; nothing and 0 ask for all.
fn allotted(asked: &str, most: Duration) -> Result<Duration, Status> {
    if asked.is_empty() {
        return Ok(most);
    }
    let nanos = api::time::parse_duration(asked)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    let asked = u64::try_from(nanos).unwrap_or(0);
    if asked == 0 { Ok(most) } else { Ok(most.min(Duration::from_nanos(asked))) }
}

/// Gives the work up at its deadline. Most work is done at its first poll and needs no timer.
pub async fn within<T>(timeout: Option<Duration>, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let mut work = pin!(work);
    let Some(timeout) = timeout else { return work.await };
    let first = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    });
    if let Some(result) = first.await {
        return result;
    }
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(timed_out()))
}

fn timed_out() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

/// Whether this request is the one that ends its connection.
pub fn says_goaway(chance: f64) -> bool {
    chance > 0.0 && (crate::common::ids::below(1 << 32) as f64) < chance * (1u64 << 32) as f64
}

/// The requests under way where fairness is off.
#[derive(Debug, Default)]
pub struct Inflight {
    reading: Arc<AtomicU32>,
    mutating: Arc<AtomicU32>,
}

/// One of the counted places; given back when it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inflight {
    /// A place; None inside for those who need none. 0 is no limit.
    pub fn enter(&self, limits: &Limits, info: &RequestInfo, user: Option<&User>) -> Result<Option<Counted>, Full> {
        let reads = matches!(info.verb, "get" | "list" | "watch");
        let (count, most) = if reads {
            (&self.reading, limits.max_requests_inflight)
        } else {
            (&self.mutating, limits.max_mutating_requests_inflight)
        };
        let master = user.is_some_and(|user| user.groups.iter().any(|group| group == "system:masters"));
        if most == 0 || master || is_long_running(info) {
            return Ok(None);
        }
        let taken =
            count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        taken.map(|_| Some(Counted(count.clone()))).map_err(|_| Full)
    }
}

/// All places are taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_ask_for_less_time() {
        let most = Duration::from_secs(60);
        let cases = [("", 60_000), ("0", 60_000), ("0s", 60_000), ("5s", 5_000), ("2m", 60_000), ("-1s", 60_000)];
        for (asked, millis) in cases {
            assert_eq!(allotted(asked, most).map(|got| got.as_millis()), Ok(millis), "{asked}");
        }
        let bad = [
            ("foo", "time: invalid duration \"foo\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1x", "time: unknown unit \"x\" in duration \"1x\""),
        ];
        for (asked, why) in bad {
            let status = allotted(asked, most).expect_err("no duration");
            assert_eq!(status.message, format!("invalid timeout specified in the request URL - {why}"));
            assert_eq!(status.code, 400);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_its_deadline() {
        let done = within(Some(Duration::ZERO), async { Ok(1) }).await;
        assert_eq!(done, Ok(1));
        let never = within::<()>(Some(Duration::from_secs(1)), std::future::pending()).await.expect_err("a timeout");
        assert_eq!((never.code, never.reason.as_ref()), (504, "Timeout"));
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let limits = Limits { max_requests_inflight: 1, ..Limits::default() };
        let inflight = Inflight::default();
        let get = RequestInfo { verb: "get", is_resource: true, ..RequestInfo::default() };
        let create = RequestInfo { verb: "create", ..get.clone() };
        let watch = RequestInfo { verb: "watch", ..get.clone() };
        let held = inflight.enter(&limits, &get, None).expect("the first place");
        assert_eq!(inflight.enter(&limits, &get, None).err(), Some(Full));
        assert!(inflight.enter(&limits, &create, None).is_ok_and(|place| place.is_some()));
        assert!(inflight.enter(&limits, &watch, None).is_ok_and(|place| place.is_none()));
        let master = User { groups: vec!["system:masters".to_string()], ..User::default() };
        assert!(inflight.enter(&limits, &get, Some(&master)).is_ok_and(|place| place.is_none()));
        drop(held);
        assert!(inflight.enter(&limits, &get, None).is_ok());
    }
}
