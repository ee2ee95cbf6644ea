//! What goes on beside the pods.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::pod_resources;
use crate::node::Node;
use crate::node::facts::Devices;
use crate::pod::context::Agent;
use crate::pod::worker::Workers;

pub fn start(
    agent: &Arc<Agent>,
    node: Arc<Node>,
    workers: &Arc<Workers>,
    wake: impl Fn(&str) + Send + Sync + Clone + 'static,
) -> [JoinHandle<()>; 3] {
    let (sharing, known) = (agent.clone(), workers.clone());
    [
        tokio::spawn(serve_devices(agent.clone(), node, wake)),
        tokio::spawn(async move { sharing.managers.reconcile(sharing.clone(), known).await }),
        tokio::spawn(pod_resources::serve(agent.managers.clone(), workers.clone())),
    ]
}

/// Says in the node's status which devices there are.
async fn serve_devices(agent: Arc<Agent>, node: Arc<Node>, wake: impl Fn(&str) + Send + Sync + Clone + 'static) {
    let show = move |devices: Devices| {
        if node.reports().borrow().devices != devices {
            node.tell(|reports| reports.devices = devices);
        }
    };
    agent.managers.devices.clone().run(show, wake).await;
}
