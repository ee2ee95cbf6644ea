//! Removes pods by the container runtime alone, where no kubelet runs.

use std::collections::BTreeSet;

use kubelet::model::state::keys;
use kubelet::runtime::Runtime;
use thiserror::Error;

/// Why the pods of a runtime cannot be listed or removed.
#[derive(Debug, Error)]
pub(crate) enum PodsError {
    #[error("{}", .0.message())]
    List(#[source] cri::Status),
    #[error("failed to remove pod sandbox {sandbox}: {}", source.message())]
    Remove { sandbox: String, source: cri::Status },
}

/// The pods that a kubelet has in the runtime: sandbox and uid of each.
pub(crate) async fn list(runtime: &Runtime) -> Result<Vec<(String, String)>, PodsError> {
    let listed = runtime.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await;
    let listed = listed.map_err(PodsError::List)?;
    // Other clients may use the runtime too.
    let of_kubelet = |sandbox: cri::PodSandbox| Some((sandbox.id, sandbox.labels.get(keys::POD_UID)?.clone()));
    Ok(listed.items.into_iter().filter_map(of_kubelet).collect())
}

/// Stops the pods with these UIDs at once, and removes their state in the runtime.
pub(crate) async fn remove(runtime: &Runtime, uids: &BTreeSet<String>) -> Result<(), PodsError> {
    for (sandbox, _) in list(runtime).await?.into_iter().filter(|(_, uid)| uids.contains(uid)) {
        let removed = async {
            runtime.stop_sandbox(&sandbox).await?;
            runtime.remove_sandbox(&sandbox).await
        };
        removed.await.map_err(|source| PodsError::Remove { sandbox, source })?;
    }
    Ok(())
}
