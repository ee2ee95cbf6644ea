//! Stops all pods of the node without a change of the API: the next kubelet starts them again. Containers, sandboxes
//! and cgroups are removed; volumes on disk and logs are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use tokio::task::JoinSet;

use crate::model::pod;
use crate::pod::context::PodContext;
use crate::pod::worker::{GracePeriod, stop_all};
use crate::resources::cgroups::GroupError;

/// A call in flight may create one more container.
const ROUNDS: usize = 3;

/// The result for a pod.
#[derive(Debug)]
pub struct StopResult {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// How long it took.
    pub took: Duration,
    /// Why the pod was not stopped.
    pub result: Result<(), StopError>,
}

/// Why a pod was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The runtime's message.
    #[error("{}", .0.message())]
    Runtime(#[from] cri::Status),
    /// The pod's cgroup is still there.
    #[error(transparent)]
    Cgroup(#[from] GroupError),
}

/// Called with the number of pods that are to be stopped, then with each of them.
pub struct StopObserver<'a> {
    /// The number of pods to stop.
    pub started: &'a (dyn Fn(usize) + Sync),
    /// Called for each pod.
    pub stopped: &'a (dyn Fn(StopResult) + Sync),
}

/// Stops pods concurrently and removes their containers, sandboxes and cgroups.
pub(crate) async fn stop_pods(context: &Arc<PodContext>, pods: Vec<Arc<Tree>>, report: &StopObserver<'_>) {
    let running = pods.iter().filter(|pod| !pod::is_over(pod)).count();
    (report.started)(running);
    let mut tasks = JoinSet::new();
    for pod in pods {
        let context = context.clone();
        tasks.spawn(async move {
            let began = Instant::now();
            let result = stop_pod(&context, &pod).await;
            (pod, began.elapsed(), result)
        });
    }
    while let Some(ended) = tasks.join_next().await {
        let Ok((pod, took, result)) = ended else { continue };
        if !pod::is_over(&pod) || result.is_err() {
            let pod = format!("{}/{}", pod.str("metadata.namespace"), pod::name(&pod));
            (report.stopped)(StopResult { pod, took, result });
        }
    }
}

async fn stop_pod(context: &Arc<PodContext>, pod: &Arc<Tree>) -> Result<(), StopError> {
    for _ in 0..ROUNDS {
        let state = Arc::new(context.runtime.pod(pod::uid(pod)).await?);
        if state.sandboxes.is_empty() && state.containers.is_empty() {
            break;
        }
        stop_all(context, pod, &state, &GracePeriod::fixed(None)).await?;
        for container in &state.containers {
            context.runtime.remove(&container.id).await?;
        }
        for sandbox in &state.sandboxes {
            context.runtime.remove_sandbox(&sandbox.id).await?;
        }
    }
    Ok(context.groups.destroy(pod).await?)
}
