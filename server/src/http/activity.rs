//! Ends connections of unauthenticated clients that have no request in progress. HTTP/2 has no timeout for them, and a
//! client that got its 401 could stay for ever.

use std::sync::Arc;
use std::time::Duration;

use stdx::sources::ConnectionPermit;
use tokio::sync::watch;

/// The requests of a connection while its client is not authenticated.
#[derive(Clone)]
pub(super) struct Activity {
    permit: Arc<ConnectionPermit>,
    requests: watch::Sender<usize>,
}

impl Activity {
    pub(super) fn new(permit: Arc<ConnectionPermit>) -> Activity {
        Activity { permit, requests: watch::Sender::new(0) }
    }

    /// Counts a request until the guard is dropped; None if the client is authenticated.
    pub(super) fn begin(&self) -> Option<ActiveRequest> {
        if !self.permit.is_held() {
            return None;
        }
        self.requests.send_modify(|count| *count += 1);
        Some(ActiveRequest(self.requests.clone()))
    }

    /// Whether a response to this client has to be counted until its last byte.
    pub(super) fn is_counted(&self) -> bool {
        self.permit.is_held()
    }

    /// Ends when an unauthenticated client had no request in progress for `patience`, from the start, or when its
    /// connection is evicted.
    pub(super) async fn until_idle(&self, patience: Duration) {
        tokio::select! {
            () = self.permit.evicted() => {}
            () = self.until_silent(patience) => {}
        }
    }

    async fn until_silent(&self, patience: Duration) {
        let mut requests = self.requests.subscribe();
        while self.permit.is_held() {
            let is_idle = *requests.borrow_and_update() == 0;
            let limit = if is_idle { patience } else { Duration::MAX };
            if tokio::time::timeout(limit, requests.changed()).await.is_err() && self.permit.is_held() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// A request in progress, until it is dropped.
pub(super) struct ActiveRequest(watch::Sender<usize>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use stdx::sources::{SourceLimits, Sources};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn activity(sources: &Arc<Sources>, host: u8) -> Activity {
        let permit = sources.admit(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))).expect("a seat");
        Activity::new(Arc::new(permit))
    }

    async fn stays(activity: &Activity) -> bool {
        tokio::time::timeout(PATIENCE * 100, activity.until_idle(PATIENCE)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn only_unauthenticated_clients_without_requests_are_idle() {
        let sources = Sources::new(SourceLimits { total: 2, per_source: 2 });
        let silent = activity(&sources, 1);
        assert!(!stays(&silent).await, "it has never sent a request");
        let request = silent.begin();
        assert!(request.is_some() && stays(&silent).await, "a request is in progress");
        let ending = async {
            tokio::time::sleep(PATIENCE * 5).await;
            drop(request);
        };
        let began = tokio::time::Instant::now();
        tokio::join!(ending, silent.until_idle(PATIENCE));
        assert_eq!(began.elapsed().as_secs(), (PATIENCE * 6).as_secs(), "its end begins the time");
        silent.permit.release();
        assert!(stays(&silent).await && silent.begin().is_none(), "it is known");
    }

    #[tokio::test(start_paused = true)]
    async fn an_evicted_connection_ends_at_once() {
        let sources = Sources::new(SourceLimits { total: 2, per_source: 2 });
        let (oldest, newest) = (activity(&sources, 1), activity(&sources, 1));
        let _active = oldest.begin();
        let _other = activity(&sources, 2);
        assert!(!stays(&oldest).await);
        let _active = newest.begin();
        assert!(stays(&newest).await);
    }
}
