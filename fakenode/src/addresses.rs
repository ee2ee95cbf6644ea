//! The places of pods on the nodes: an address out of the node's range for each, no two alike. An address
//! that is given back rests until the range has been gone through.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::node::{self, MAX_PODS};

#[derive(Default)]
pub struct Addresses {
    /// By the uid of the pod: the node and the place on it.
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
    /// The pod's address on this node, kept for it until it is given back; None where the node is full.
    pub fn take(&mut self, node: u32, uid: &str) -> Option<Ipv4Addr> {
        if let Some((there, place)) = self.by_pod.get(uid) {
            if *there == node {
                return Some(node::pod_address(node, *place));
            }
            self.give_back(uid);
        }
        let places = self.nodes.entry(node).or_default();
        let place =
            (0..MAX_PODS).map(|step| (places.next + step) % MAX_PODS).find(|at| !places.taken.contains_key(at))?;
        places.next = (place + 1) % MAX_PODS;
        self.hold(node, uid, place);
        Some(node::pod_address(node, place))
    }

    /// Takes the very address that a pod was seen with, unless it is another's.
    pub fn keep(&mut self, node: u32, uid: &str, address: Ipv4Addr) {
        let place = node::place_of(node, address).filter(|place| *place < MAX_PODS);
        let Some(place) = place.filter(|_| !self.by_pod.contains_key(uid)) else { return };
        if !self.nodes.entry(node).or_default().taken.contains_key(&place) {
            self.hold(node, uid, place);
        }
    }

    fn hold(&mut self, node: u32, uid: &str, place: u32) {
        self.nodes.entry(node).or_default().taken.insert(place, uid.to_string());
        self.by_pod.insert(uid.to_string(), (node, place));
    }

    pub fn give_back(&mut self, uid: &str) {
        let Some((node, place)) = self.by_pod.remove(uid) else { return };
        if let Some(places) = self.nodes.get_mut(&node) {
            places.taken.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_share_an_address() {
        let mut addresses = Addresses::default();
        let first = addresses.take(0, "a").expect("an address");
        assert_eq!(addresses.take(0, "a"), Some(first), "it stays");
        let second = addresses.take(0, "b").expect("an address");
        let elsewhere = addresses.take(1, "c").expect("an address");
        assert!(first != second && first != elsewhere && second != elsewhere);
        addresses.give_back("a");
        assert_ne!(addresses.take(0, "d"), Some(first), "it rests");
        addresses.keep(0, "e", first);
        assert_eq!(addresses.take(0, "e"), Some(first), "a pod that was there keeps its own");
        addresses.keep(0, "f", first);
        assert_ne!(addresses.take(0, "f"), Some(first), "but not another's");
    }

    #[test]
    fn a_node_is_full_some_day() {
        let mut addresses = Addresses::default();
        let taken = (0..MAX_PODS).filter_map(|pod| addresses.take(5, &pod.to_string())).collect::<Vec<_>>();
        let distinct: std::collections::BTreeSet<_> = taken.iter().collect();
        assert_eq!(distinct.len() as u32, MAX_PODS);
        assert_eq!(addresses.take(5, "more"), None);
        addresses.give_back("17");
        assert_eq!(addresses.take(5, "more"), Some(taken[17]));
    }
}
