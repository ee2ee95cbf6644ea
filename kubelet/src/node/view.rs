//! A read-only view of the node, as in the API and as reported by the kubelet.

use std::net::IpAddr;
use std::sync::Arc;

use api::Tree;
use tokio::sync::watch;

use super::status_input::Reports;

/// A cheap copy follows the same node.
#[derive(Clone)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    object: watch::Receiver<Option<Arc<Tree>>>,
    reports: watch::Receiver<Reports>,
}

impl NodeView {
    pub(super) fn new(
        name: String,
        object: watch::Receiver<Option<Arc<Tree>>>,
        reports: watch::Receiver<Reports>,
    ) -> NodeView {
        NodeView { name, object, reports }
    }

    /// The node object; None before it is registered or read.
    pub(crate) fn object(&self) -> Option<Arc<Tree>> {
        self.object.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Tree>>> {
        self.object.clone()
    }

    pub(crate) fn reports(&self) -> watch::Ref<'_, Reports> {
        self.reports.borrow()
    }

    /// The object reference of the node for events.
    pub(crate) fn reference(&self) -> Tree {
        super::reference(&self.name)
    }

    /// Allocatable resources; null while they are not known.
    pub(crate) fn allocatable(&self) -> Tree {
        self.object().map(|node| node.at("status.allocatable").clone()).unwrap_or_default()
    }

    /// The addresses of type InternalIP that the node has reported.
    pub(crate) fn host_ips(&self) -> Vec<IpAddr> {
        let node = self.object().unwrap_or_default();
        let inner = node.list("status.addresses").iter().filter(|address| address.str("type") == "InternalIP");
        inner.filter_map(|address| address.str("address").parse().ok()).collect()
    }

    /// The first address; "" while none is known.
    pub(crate) fn host_ip(&self) -> String {
        self.host_ips().first().map(ToString::to_string).unwrap_or_default()
    }
}
