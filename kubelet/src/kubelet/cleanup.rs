//! Removes the remains of pods that were deleted while no kubelet ran.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use stdx::backoff::Backoff;
use tokio::sync::watch;

use crate::gc;
use crate::model::pod;
use crate::model::state::keys;
use crate::pod::context::PodContext;
use crate::pod::worker::{Workers, from_labels};

/// The growing pause before the runtime is called again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Removes pods that no source has, but that still have state in the runtime or on disk.
pub(crate) async fn remove_unknown(
    workers: Arc<Workers>,
    context: Arc<PodContext>,
    mut all_known: watch::Receiver<bool>,
) {
    if all_known.wait_for(|known| *known).await.is_err() {
        return;
    }
    let mut running = BTreeSet::new();
    for sandbox in list_sandboxes(&context).await {
        let metadata = sandbox.metadata.unwrap_or_default();
        running.insert(metadata.uid.clone());
        // Other clients may use the runtime too.
        if sandbox.labels.get(keys::POD_UID) == Some(&metadata.uid) && !workers.contains(&metadata.uid) {
            let pod = from_labels(&metadata.uid, &metadata.name, &metadata.namespace);
            workers.clean_up(Arc::new(pod));
        }
    }
    let known: BTreeSet<String> = workers.pods().iter().map(|pod: &Arc<Tree>| pod::uid(pod).to_string()).collect();
    context.statuses.keep(&known);
    context.managers.keep(|uid| workers.contains(uid) || running.contains(uid));
    let known: BTreeSet<String> =
        workers.pods().iter().map(|pod| pod::uid(pod).to_string()).chain(running.iter().cloned()).collect();
    if let Err(why) = context.groups.clean_up(move |uid| known.contains(uid)).await {
        tracing::warn!(error = %why, "failed to remove cgroups of deleted pods");
    }
    let is_unknown = |uid: &String| !workers.contains(uid) && !running.contains(uid);
    let left: Vec<String> = context.volumes.reconstruct().unwrap_or_default().into_iter().filter(is_unknown).collect();
    gc::remove_logs(&context.config.pod_logs_dir, &left);
    context.volumes.clean_up(|uid| workers.contains(uid) || running.contains(uid)).await;
}

/// All sandboxes of the runtime. Retries until the runtime responds, since unknown pods are searched only once.
async fn list_sandboxes(context: &PodContext) -> Vec<cri::PodSandbox> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match context.runtime.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await {
            Ok(listed) => return listed.items,
            Err(status) => tracing::warn!(error = status.message(), "failed to list sandboxes, retrying"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}
