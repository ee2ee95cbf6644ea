//! Removes pods by the container runtime alone, where no kubelet runs.

use std::collections::BTreeSet;

use kubelet::model::state::keys;
use kubelet::runtime::Runtime;

/// The pods that a kubelet has in the runtime: sandbox and uid of each.
pub async fn list(runtime: &Runtime) -> Result<Vec<(String, String)>, String> {
    let listed = runtime.service.list_pod_sandbox(cri::ListPodSandboxRequest { filter: None }).await;
    let listed = listed.map_err(|status| status.message().to_string())?;
    // Others may use the runtime too.
    let of_kubelet = |sandbox: cri::PodSandbox| Some((sandbox.id, sandbox.labels.get(keys::POD_UID)?.clone()));
    Ok(listed.items.into_iter().filter_map(of_kubelet).collect())
}

/// Ends the pods with these uids at once, and removes what the runtime has of them.
pub async fn remove(runtime: &Runtime, uids: &BTreeSet<String>) -> Result<(), String> {
    for (sandbox, _) in list(runtime).await?.into_iter().filter(|(_, uid)| uids.contains(uid)) {
        let removed = async {
            runtime.stop_sandbox(&sandbox).await?;
            runtime.remove_sandbox(&sandbox).await
        };
        removed.await.map_err(|status| format!("failed to remove pod sandbox {sandbox}: {}", status.message()))?;
    }
    Ok(())
}
