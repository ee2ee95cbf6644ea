//! Limits how long a caller waits for a runtime that may hang. A call that changes something is a task of its own, which
//! completes even if its caller is dropped: the built-in runtime is never interrupted in the middle of a change.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::messages::{ExecSyncRequest, PullImageRequest, RunPodSandboxRequest, StopContainerRequest};
use crate::{Code, Status};

/// A service whose calls time out.
pub struct TimeoutService<S: ?Sized> {
    pub(crate) service: Arc<S>,
    usual: Duration,
}

impl<S: ?Sized> TimeoutService<S> {
    /// Limits the calls of a service; `usual` is the timeout of most calls.
    pub fn new(service: Arc<S>, usual: Duration) -> TimeoutService<S> {
        TimeoutService { service, usual }
    }

    pub(crate) fn limit(&self, request: &dyn Any) -> Option<Duration> {
        limit(self.usual, request)
    }
}

/// How long a call may take, as upstream has it: the timeout that the call passes to the runtime is added, and images
/// take as long as they take.
fn limit(usual: Duration, request: &dyn Any) -> Option<Duration> {
    let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if request.is::<PullImageRequest>() {
        return None;
    }
    if request.is::<RunPodSandboxRequest>() {
        return Some(usual.saturating_mul(2));
    }
    if let Some(stop) = request.downcast_ref::<StopContainerRequest>() {
        return Some(usual.saturating_add(seconds(stop.timeout)));
    }
    match request.downcast_ref::<ExecSyncRequest>() {
        Some(exec) if exec.timeout == 0 => None,
        Some(exec) => Some(usual.saturating_add(seconds(exec.timeout))),
        None => Some(usual),
    }
}

/// Waits for a call by its name.
pub(crate) async fn wait<T: Send + 'static>(
    name: &'static str,
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let whole = async {
        if is_question(name) {
            return call.await;
        }
        tokio::spawn(call).await.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    };
    let Some(limit) = limit else { return whole.await };
    let late = |_| Err(Status::new(Code::DeadlineExceeded, format!("{name}: no answer within {limit:?}")));
    tokio::time::timeout(limit, whole).await.unwrap_or_else(late)
}

/// A call whose caller has given up leaves nothing behind.
fn is_question(name: &str) -> bool {
    let ends = ["Status", "Stats", "Config", "FsInfo", "Version"];
    name.starts_with("List") || !name.starts_with("Update") && ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IMAGE_CALLS, RUNTIME_CALLS, VersionRequest};

    #[test]
    fn adds_the_timeout_of_the_request() {
        let usual = Duration::from_secs(120);
        let limit = |request: &dyn Any| limit(usual, request).map(|limit| limit.as_secs());
        let stop = |timeout| StopContainerRequest { timeout, ..Default::default() };
        let exec = |timeout| ExecSyncRequest { timeout, ..Default::default() };
        assert_eq!(limit(&VersionRequest::default()), Some(120));
        assert_eq!(limit(&RunPodSandboxRequest::default()), Some(240));
        assert_eq!((limit(&stop(30)), limit(&stop(-1))), (Some(150), Some(120)));
        assert_eq!((limit(&exec(5)), limit(&exec(0))), (Some(125), None));
        assert_eq!(limit(&PullImageRequest::default()), None);
    }

    #[test]
    fn distinguishes_reads_from_changes() {
        let questions: Vec<&str> =
            RUNTIME_CALLS.iter().chain(IMAGE_CALLS).copied().filter(|name| is_question(name)).collect();
        let want = [
            "Version",
            "PodSandboxStatus",
            "ListPodSandbox",
            "ListContainers",
            "ContainerStatus",
            "ContainerStats",
            "ListContainerStats",
            "PodSandboxStats",
            "ListPodSandboxStats",
            "Status",
            "ListMetricDescriptors",
            "ListPodSandboxMetrics",
            "RuntimeConfig",
            "StreamContainerStats",
            "StreamPodSandboxStats",
            "ListImages",
            "ImageStatus",
            "ImageFsInfo",
        ];
        assert_eq!(questions, want);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timed_out_change_continues_without_its_caller() {
        let (send, done) = tokio::sync::oneshot::channel();
        let change = async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let _ = send.send(());
            Ok(())
        };
        let limit = Some(Duration::from_secs(2));
        let error = wait("StopContainer", limit, change).await.expect_err("late");
        assert_eq!((error.code(), error.message()), (Code::DeadlineExceeded, "StopContainer: no answer within 2s"));
        assert_eq!(done.await, Ok(()));
        let question = std::future::pending::<Result<(), Status>>();
        assert_eq!(wait("ListImages", limit, question).await.expect_err("late").code(), Code::DeadlineExceeded);
    }
}
