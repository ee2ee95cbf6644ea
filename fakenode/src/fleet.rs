//! The nodes as the binder and the pods see them, behind one lock: their objects, whose turn it is, the
//! addresses of their pods, and the pods that found no node.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Tree;
use client::Key;

use crate::addresses::Addresses;
use crate::bind::Nodes;
use crate::node;

#[derive(Default)]
pub struct Fleet(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    nodes: Nodes,
    addresses: Addresses,
    waiting: BTreeSet<Key>,
}

impl Fleet {
    fn hold(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn follow_node(&self, name: &str, object: Option<Arc<Tree>>) {
        self.hold().nodes.follow(name, object);
    }

    /// A pod that is over, or gone, leaves its place to others.
    pub fn follow_pod(&self, pod: &Tree, gone: bool) {
        let uid = pod.str("metadata.uid");
        let mut inner = self.hold();
        if gone || crate::pod::is_over(pod) {
            return inner.addresses.give_back(uid);
        }
        let (node, address) = (node::number(pod.str("spec.nodeName")), pod.str("status.podIP").parse::<Ipv4Addr>());
        if let (Some(node), Ok(address)) = (node, address) {
            inner.addresses.keep(node, uid, address);
        }
    }

    /// The node of this number, unless it is lost or there is none.
    pub fn is_up(&self, number: u32) -> bool {
        self.hold().nodes.get(number).is_some_and(|node| !node::is_down(node))
    }

    pub fn address(&self, number: u32, pod: &Tree) -> Option<Ipv4Addr> {
        self.hold().addresses.take(number, pod.str("metadata.uid"))
    }

    /// The node that a pod goes to, where it has a place from now on; without one it waits for a change.
    pub fn choose(&self, key: &Key, pod: &Tree) -> Result<u32, usize> {
        let mut inner = self.hold();
        let Inner { nodes, addresses, waiting } = &mut *inner;
        let uid = pod.str("metadata.uid");
        nodes.choose(pod, |number| addresses.take(number, uid).is_some()).ok_or_else(|| {
            waiting.insert(key.clone());
            nodes.len()
        })
    }

    /// The pods that waited; they are looked at again.
    pub fn wake(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.hold().waiting)
    }
}
