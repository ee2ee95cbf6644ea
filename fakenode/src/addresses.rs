//! The addresses of pods, each unique in the range of its node. A released address is not
//! assigned again until the search has passed through the whole range.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::node::{self, MAX_PODS};

#[derive(Default)]
pub(crate) struct Addresses {
    /// By the uid of the pod: the node and the slot on it.
    by_pod: BTreeMap<String, (u32, u32)>,
    nodes: BTreeMap<u32, Slots>,
}

#[derive(Default)]
struct Slots {
    taken: BTreeMap<u32, String>,
    /// Where the next search begins.
    next: u32,
}

impl Addresses {
    /// The pod's address on this node, assigned until it is released; None if the node is full.
    pub(crate) fn assign(&mut self, node: u32, uid: &str) -> Option<Ipv4Addr> {
        if let Some((there, slot)) = self.by_pod.get(uid) {
            if *there == node {
                return Some(node::pod_address(node, *slot));
            }
            self.release(uid);
        }
        let places = self.nodes.entry(node).or_default();
        let slot =
            (0..MAX_PODS).map(|step| (places.next + step) % MAX_PODS).find(|at| !places.taken.contains_key(at))?;
        places.next = (slot + 1) % MAX_PODS;
        self.occupy(node, uid, slot);
        Some(node::pod_address(node, slot))
    }

    /// Assigns the address of a pod's status, unless another pod has it.
    pub(crate) fn restore(&mut self, node: u32, uid: &str, address: Ipv4Addr) {
        let slot = node::slot_of(node, address).filter(|slot| *slot < MAX_PODS);
        let Some(slot) = slot.filter(|_| !self.by_pod.contains_key(uid)) else { return };
        if !self.nodes.entry(node).or_default().taken.contains_key(&slot) {
            self.occupy(node, uid, slot);
        }
    }

    fn occupy(&mut self, node: u32, uid: &str, slot: u32) {
        self.nodes.entry(node).or_default().taken.insert(slot, uid.to_string());
        self.by_pod.insert(uid.to_string(), (node, slot));
    }

    pub(crate) fn release(&mut self, uid: &str) {
        let Some((node, slot)) = self.by_pod.remove(uid) else { return };
        if let Some(places) = self.nodes.get_mut(&node) {
            places.taken.remove(&slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_share_an_address() {
        let mut addresses = Addresses::default();
        let first = addresses.assign(0, "a").expect("an address");
        assert_eq!(addresses.assign(0, "a"), Some(first), "it stays");
        let second = addresses.assign(0, "b").expect("an address");
        let elsewhere = addresses.assign(1, "c").expect("an address");
        assert!(first != second && first != elsewhere && second != elsewhere);
        addresses.release("a");
        assert_ne!(addresses.assign(0, "d"), Some(first), "it rests");
        addresses.restore(0, "e", first);
        assert_eq!(addresses.assign(0, "e"), Some(first), "a pod that was there keeps its own");
        addresses.restore(0, "f", first);
        assert_ne!(addresses.assign(0, "f"), Some(first), "but not another's");
    }

    #[test]
    fn a_node_is_full_some_day() {
        let mut addresses = Addresses::default();
        let taken = (0..MAX_PODS).filter_map(|pod| addresses.assign(5, &pod.to_string())).collect::<Vec<_>>();
        let distinct: std::collections::BTreeSet<_> = taken.iter().collect();
        assert_eq!(distinct.len() as u32, MAX_PODS);
        assert_eq!(addresses.assign(5, "more"), None);
        addresses.release("17");
        assert_eq!(addresses.assign(5, "more"), Some(taken[17]));
    }
}
