//! Ends connections whose client sends nothing.

use std::time::Duration;

use tokio::sync::Notify;

/// Ends if no first request has arrived in time: until then HTTP has no timeout.
pub(super) async fn until_silent(arrived: &Notify, patience: Duration) {
    if tokio::time::timeout(patience, arrived.notified()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_sends_nothing_is_silent() {
        let (arrived, patience) = (Notify::new(), Duration::from_secs(30));
        until_silent(&arrived, patience).await;
        arrived.notify_one();
        let long = tokio::time::timeout(Duration::from_secs(3600), until_silent(&arrived, patience)).await;
        assert!(long.is_err(), "it has spoken");
    }
}
