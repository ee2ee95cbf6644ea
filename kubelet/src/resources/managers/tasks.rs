//! Tasks of the resource managers besides admission.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Managers, pod_resources};
use crate::model::state::ListPods;
use crate::node::Node;
use crate::node::status_input::Devices;
use crate::runtime::Runtime;

pub(crate) fn start(
    managers: &Arc<Managers>,
    runtime: Runtime,
    node: Arc<Node>,
    pods: ListPods,
    wake: impl Fn(&str) + Send + Sync + Clone + 'static,
) -> [JoinHandle<()>; 3] {
    let (reconciling, known) = (managers.clone(), pods.clone());
    [
        tokio::spawn(serve_devices(managers.clone(), node, wake)),
        tokio::spawn(async move { reconciling.reconcile(&runtime, &known).await }),
        tokio::spawn(pod_resources::serve(managers.clone(), pods)),
    ]
}

/// Reports the devices in the node's status.
async fn serve_devices(managers: Arc<Managers>, node: Arc<Node>, wake: impl Fn(&str) + Send + Sync + Clone + 'static) {
    let show = move |devices: Devices| {
        if node.reports().borrow().devices != devices {
            node.update_reports(|reports| reports.devices = devices);
        }
    };
    managers.devices.clone().run(show, wake).await;
}
