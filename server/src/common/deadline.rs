//! The time until which a request has to be complete.

use std::time::Duration;

use api::status::Status;
use tokio::time::Instant;

/// A point in time, or none. Work that cannot wait, such as the evaluation of expressions, looks at it now and then: a
/// timer only fires between two steps of a future.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The request has no deadline.
    pub(crate) const NONE: Deadline = Deadline(None);

    /// The time after a timeout.
    pub(crate) fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.map(|timeout| Instant::now() + timeout))
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// An error once it is over. What was interrupted has no result: the request must end before anything is decided
    /// by the lack of one.
    pub(crate) fn check(self) -> Result<(), Status> {
        if self.is_over() { Err(timed_out()) } else { Ok(()) }
    }
}

/// The response to a request after its deadline.
pub(crate) fn timed_out() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadlines_pass() {
        let (one, none) = (Deadline::after(Some(Duration::from_secs(1))), Deadline::after(None));
        assert!(one.check().is_ok() && !one.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(one.check().map_err(|status| status.code), Err(504));
        assert!(none.check().is_ok() && Deadline::NONE.check().is_ok());
    }
}
