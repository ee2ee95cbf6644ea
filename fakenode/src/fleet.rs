//! The state of all nodes behind one lock: which nodes are up, and the addresses of their pods.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use api::Tree;
use stdx::sync::{Mutex, MutexGuard};

use crate::addresses::Addresses;
use crate::node;

#[derive(Default)]
pub(crate) struct Fleet(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By number: whether it is lost.
    nodes: BTreeMap<u32, bool>,
    addresses: Addresses,
}

impl Fleet {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    pub(crate) fn follow_node(&self, name: &str, object: Option<&Tree>) {
        let Some(number) = node::number(name) else { return };
        let mut inner = self.lock();
        match object {
            Some(object) => drop(inner.nodes.insert(number, node::is_down(object))),
            None => drop(inner.nodes.remove(&number)),
        }
    }

    /// A finished or deleted pod releases its address.
    pub(crate) fn follow_pod(&self, pod: &Tree, gone: bool) {
        let uid = pod.str("metadata.uid");
        let mut inner = self.lock();
        if gone || crate::pod::is_over(pod) {
            return inner.addresses.release(uid);
        }
        let (node, address) = (node::number(pod.str("spec.nodeName")), pod.str("status.podIP").parse::<Ipv4Addr>());
        if let (Some(node), Ok(address)) = (node, address) {
            inner.addresses.restore(node, uid, address);
        }
    }

    /// The node of this number, unless it is lost or there is none.
    pub(crate) fn is_up(&self, number: u32) -> bool {
        self.lock().nodes.get(&number).is_some_and(|is_down| !is_down)
    }

    pub(crate) fn address(&self, number: u32, pod: &Tree) -> Option<Ipv4Addr> {
        self.lock().addresses.assign(number, pod.str("metadata.uid"))
    }
}
