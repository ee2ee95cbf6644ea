//! Small loops that connect the parts: reports of plugins, volumes and the runtime become part of the node's status.

use std::sync::Arc;
use std::time::Duration;

use client::Informers;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::liveness::Liveness;
use crate::node::Node;
use crate::pod::context::PodContext;
use crate::pod::worker::Workers;

const LIVENESS_PERIOD: Duration = Duration::from_secs(10);
/// Before the limits of all pods together are set again.
const ENFORCE_PAUSE: Duration = Duration::from_secs(60);

/// Becomes true once the API and all other sources have reported their pods.
pub(crate) async fn wait_for_all_sources(
    informers: Arc<Informers>,
    sources: [watch::Receiver<bool>; 2],
    all: watch::Sender<bool>,
) {
    informers.synced().await;
    for mut source in sources {
        if source.wait_for(|known| *known).await.is_err() {
            return;
        }
    }
    all.send_replace(true);
}

/// Registers plugins of volumes and devices as they appear and disappear.
pub(crate) async fn watch_plugins(context: Arc<PodContext>) {
    let devices = context.managers.devices.clone();
    context.volumes.run(&move |name, socket, versions| Ok(devices.register_socket(name, socket, versions)?)).await;
}

/// Reports in the node's status which volumes must not be detached.
pub(crate) async fn report_volumes(context: Arc<PodContext>, node: Arc<Node>) {
    let mut used = context.volumes.in_use();
    loop {
        let now = used.borrow_and_update().iter().cloned().collect();
        node.update_reports(|reports| reports.volumes_in_use = Some(now));
        if used.changed().await.is_err() {
            return;
        }
    }
}

/// Records that the workers can be reached, and reports a runtime that has been silent for too long.
pub(crate) async fn report_liveness(liveness: Arc<Liveness>, workers: Arc<Workers>, node: Arc<Node>) {
    loop {
        // A task that holds the workers' lock forever has stopped the loop.
        workers.pods();
        liveness.record_sync(Instant::now());
        let problem = liveness.runtime(Instant::now());
        if node.reports().borrow().runtime_silence != problem {
            node.update_reports(|reports| reports.runtime_silence = problem);
        }
        tokio::time::sleep(LIVENESS_PERIOD).await;
    }
}

/// Limits all pods together. Pods may use more than the limit when the kubelet starts: retries until enough of them
/// have ended.
pub(crate) async fn enforce_allocatable(context: Arc<PodContext>) {
    if !context.config.cgroups_per_qos {
        return;
    }
    loop {
        let groups = context.groups.clone();
        let done = tokio::task::spawn_blocking(move || groups.limit_all()).await;
        match done.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => {
                let text = "Updated Node Allocatable limit across pods";
                return context.recorder.normal(&context.node.reference(), "NodeAllocatableEnforced", text);
            }
            Err(why) => {
                let text = format!("Failed to update Node Allocatable Limits: {why}");
                context.recorder.warning(&context.node.reference(), "FailedNodeAllocatableEnforcement", text);
            }
        }
        tokio::time::sleep(ENFORCE_PAUSE).await;
    }
}
