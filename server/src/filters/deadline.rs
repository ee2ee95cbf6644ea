//! The deadline of a request.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use api::status::Status;

use crate::common::deadline::timed_out;
use crate::request::head::RequestHead;
use crate::request::limits::{Limits, is_long_running};

/// The timeout of this call; None if it has no deadline.
pub(super) fn timeout(limits: &Limits, head: &RequestHead) -> Result<Option<Duration>, Status> {
    if is_long_running(&head.info) {
        return Ok(None);
    }
    allotted(head.query.get("timeout"), limits.request_timeout).map(Some)
}

/// A client may request a shorter timeout than the limit, not a longer one; an empty value and 0 select the limit.
fn allotted(requested: &str, most: Duration) -> Result<Duration, Status> {
    if requested.is_empty() {
        return Ok(most);
    }
    let nanos = api::time::parse_duration(requested)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    let requested = u64::try_from(nanos).unwrap_or(0);
    if requested == 0 { Ok(most) } else { Ok(most.min(Duration::from_nanos(requested))) }
}

/// Gives the work up at its deadline. Most work is done at its first poll and needs no timer.
pub(super) async fn within<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_may_request_a_shorter_timeout() {
        let most = Duration::from_secs(60);
        let cases = [("", 60_000), ("0", 60_000), ("0s", 60_000), ("5s", 5_000), ("2m", 60_000), ("-1s", 60_000)];
        for (requested, millis) in cases {
            assert_eq!(allotted(requested, most).map(|got| got.as_millis()), Ok(millis), "{requested}");
        }
        let bad = [
            ("foo", "time: invalid duration \"foo\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1x", "time: unknown unit \"x\" in duration \"1x\""),
        ];
        for (requested, why) in bad {
            let status = allotted(requested, most).expect_err("no duration");
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
}
