//! The objects of a cluster by name and by address. An [`Index`] is a snapshot; the [`Writer`] applies one object at a
//! time, at the cost of that object, and snapshots share everything else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::objects::{Pod, Service, Slice, service_key};

/// A snapshot of the names of a cluster. The large maps are trees, which take a third of the memory of hash maps; a
/// query for a Service needs one of them at most.
#[derive(Debug, Clone, Default)]
pub struct Index {
    namespaces: imbl::HashMap<Arc<str>, ()>,
    services: imbl::HashMap<Arc<str>, Arc<Service>>,
    /// The slices of each Service, sorted by name.
    slices: imbl::OrdMap<Arc<str>, Arc<[NamedSlice]>>,
    cluster_ips: imbl::OrdMap<IpAddr, Owners>,
    /// The Services of endpoint addresses, once for each slice that has the address.
    endpoints: imbl::OrdMap<IpAddr, Owners>,
    pods: imbl::OrdMap<IpAddr, Arc<[Arc<Pod>]>>,
    /// Seconds since the epoch at the last change: the serial of the zone.
    modified: u32,
}

type NamedSlice = (Arc<str>, Arc<Slice>);

/// The keys of the Services that have an address. Nearly always there is one.
#[derive(Debug, Clone)]
enum Owners {
    One(Arc<str>),
    Many(Arc<[Arc<str>]>),
}

impl Owners {
    fn as_slice(&self) -> &[Arc<str>] {
        match self {
            Owners::One(key) => std::slice::from_ref(key),
            Owners::Many(keys) => keys,
        }
    }

    fn with(&self, key: &Arc<str>) -> Owners {
        Owners::Many(self.as_slice().iter().chain([key]).cloned().collect())
    }

    /// Without one occurrence of the key.
    fn without(&self, key: &str) -> Option<Owners> {
        let mut keys = self.as_slice().to_vec();
        if let Some(at) = keys.iter().position(|other| **other == *key) {
            keys.remove(at);
        }
        match keys.as_slice() {
            [] => None,
            [one] => Some(Owners::One(one.clone())),
            _ => Some(Owners::Many(keys.into())),
        }
    }
}

impl Index {
    /// Whether a namespace exists.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace)
    }

    /// A Service by `name.namespace`.
    pub fn service(&self, key: &str) -> Option<&Arc<Service>> {
        self.services.get(key)
    }

    /// The slices of a Service.
    pub fn slices(&self, key: &str) -> impl Iterator<Item = &Slice> {
        self.slices.get(key).into_iter().flat_map(|slices| slices.iter().map(|(_, slice)| &**slice))
    }

    /// The keys of the Services with a cluster IP.
    pub fn services_at(&self, address: &IpAddr) -> &[Arc<str>] {
        self.cluster_ips.get(address).map(Owners::as_slice).unwrap_or_default()
    }

    /// The keys of the Services with an endpoint at an address; a key may occur several times.
    pub fn endpoints_at(&self, address: &IpAddr) -> &[Arc<str>] {
        self.endpoints.get(address).map(Owners::as_slice).unwrap_or_default()
    }

    /// The pods with an address.
    pub fn pods_at(&self, address: &IpAddr) -> &[Arc<Pod>] {
        self.pods.get(address).map(|pods| &**pods).unwrap_or_default()
    }

    /// The time of the last change, in seconds since the epoch.
    pub fn modified(&self) -> u32 {
        self.modified
    }
}

/// Changes an index by the current state of single objects.
#[derive(Debug, Default)]
pub struct Writer {
    index: Index,
    /// The slices and pods by `NAMESPACE/NAME`, to find what an object was before.
    slices: HashMap<Arc<str>, Arc<Slice>>,
    pods: HashMap<Arc<str>, Arc<Pod>>,
}

impl Writer {
    /// The current snapshot.
    pub fn index(&self) -> Index {
        self.index.clone()
    }

    /// Sets the time of the last change, in seconds since the epoch.
    pub fn set_modified(&mut self, seconds: u32) {
        self.index.modified = seconds;
    }

    /// Adds or removes a namespace.
    pub fn set_namespace(&mut self, name: &str, exists: bool) {
        match exists {
            true => self.index.namespaces.insert(Arc::from(name), ()),
            false => self.index.namespaces.remove(name),
        };
    }

    /// Sets or removes a Service.
    pub fn set_service(&mut self, namespace: &str, name: &str, service: Option<Service>) {
        let key = service_key(namespace, name);
        let old = match service {
            Some(service) => {
                let service = Arc::new(service);
                let old = self.index.services.insert(key.clone(), service.clone());
                service.cluster_ips().iter().for_each(|address| add(&mut self.index.cluster_ips, address, &key));
                old
            }
            None => self.index.services.remove(&key),
        };
        for address in old.iter().flat_map(|old| old.cluster_ips()) {
            remove(&mut self.index.cluster_ips, address, &key);
        }
    }

    /// Sets or removes an EndpointSlice by `NAMESPACE/NAME`.
    pub fn set_slice(&mut self, key: &Arc<str>, slice: Option<Slice>) {
        let new = slice.map(Arc::new);
        let old = match &new {
            Some(new) => self.slices.insert(key.clone(), new.clone()),
            None => self.slices.remove(key),
        };
        self.index_addresses(old.as_deref(), new.as_deref());
        if let Some(old) = old.filter(|old| new.as_ref().is_none_or(|new| new.service != old.service)) {
            self.set_slice_of(&old.service, key, None);
        }
        if let Some(new) = new {
            self.set_slice_of(&new.service.clone(), key, Some(new));
        }
    }

    /// Updates the addresses that differ only, since most changes of a slice are one endpoint.
    fn index_addresses(&mut self, old: Option<&Slice>, new: Option<&Slice>) {
        let service = |slice: Option<&Slice>| slice.map(|slice| slice.service.clone());
        let sorted = |slice: Option<&Slice>| {
            let mut all: Vec<IpAddr> =
                slice.iter().flat_map(|slice| slice.endpoints.iter().map(|endpoint| endpoint.address)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (before, after) = (sorted(old), sorted(new));
        let is_same = service(old) == service(new);
        let map = &mut self.index.endpoints;
        if let Some(key) = service(new) {
            let added = after.iter().filter(|address| !is_same || before.binary_search(address).is_err());
            added.for_each(|address| add(map, address, &key));
        }
        if let Some(key) = service(old) {
            let removed = before.iter().filter(|address| !is_same || after.binary_search(address).is_err());
            removed.for_each(|address| remove(map, address, &key));
        }
    }

    /// Sets or removes a slice among those of its Service.
    fn set_slice_of(&mut self, service: &Arc<str>, key: &Arc<str>, slice: Option<Arc<Slice>>) {
        let current = self.index.slices.get(service).map(|slices| slices.to_vec()).unwrap_or_default();
        let mut slices: Vec<NamedSlice> = current.into_iter().filter(|(other, _)| other != key).collect();
        if let Some(slice) = slice {
            let at = slices.partition_point(|(other, _)| other < key);
            slices.insert(at, (key.clone(), slice));
        }
        match slices.is_empty() {
            true => self.index.slices.remove(service),
            false => self.index.slices.insert(service.clone(), slices.into()),
        };
    }

    /// Sets or removes a Pod by `NAMESPACE/NAME`.
    pub fn set_pod(&mut self, key: &Arc<str>, pod: Option<Pod>) {
        let new = pod.map(Arc::new);
        if self.pods.get(key) == new.as_ref() {
            return;
        }
        let old = match &new {
            Some(new) => self.pods.insert(key.clone(), new.clone()),
            None => self.pods.remove(key),
        };
        for (pod, address) in old.iter().flat_map(|pod| pod.addresses.iter().map(move |address| (pod, address))) {
            let others = self.index.pods_at(address).iter().filter(|other| !Arc::ptr_eq(other, pod));
            let others: Vec<Arc<Pod>> = others.cloned().collect();
            match others.is_empty() {
                true => self.index.pods.remove(address),
                false => self.index.pods.insert(*address, others.into()),
            };
        }
        for (pod, address) in new.iter().flat_map(|pod| pod.addresses.iter().map(move |address| (pod, address))) {
            let all = self.index.pods_at(address).iter().chain([pod]).cloned().collect();
            self.index.pods.insert(*address, all);
        }
    }
}

fn add(map: &mut imbl::OrdMap<IpAddr, Owners>, address: &IpAddr, key: &Arc<str>) {
    let owners = map.get(address).map_or_else(|| Owners::One(key.clone()), |owners| owners.with(key));
    map.insert(*address, owners);
}

fn remove(map: &mut imbl::OrdMap<IpAddr, Owners>, address: &IpAddr, key: &str) {
    match map.get(address).and_then(|owners| owners.without(key)) {
        Some(owners) => map.insert(*address, owners),
        None => map.remove(address),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::objects::{Endpoint, Port};

    fn slice(service: &str, addresses: &[u8]) -> Slice {
        let endpoint = |last: &u8| Endpoint { address: [10, 0, 0, *last].into(), hostname: None, target: None };
        let ports: Box<[Port]> = Box::default();
        Slice { service: Arc::from(service), endpoints: addresses.iter().map(endpoint).collect(), ports }
    }

    fn owners(writer: &Writer, last: u8) -> String {
        writer.index().endpoints_at(&[10, 0, 0, last].into()).join(" ")
    }

    #[test]
    fn addresses_follow_slices() {
        let mut writer = Writer::default();
        let (one, two): (Arc<str>, Arc<str>) = ("a/one".into(), "a/two".into());
        writer.set_slice(&one, Some(slice("web.a", &[1, 2])));
        let before = writer.index();
        // The endpoint moves to another slice of the same Service: both have it for a moment.
        writer.set_slice(&two, Some(slice("web.a", &[2, 3])));
        assert_eq!((owners(&writer, 2), owners(&writer, 3)), ("web.a web.a".into(), "web.a".into()));
        writer.set_slice(&one, Some(slice("web.a", &[1])));
        assert_eq!((owners(&writer, 1), owners(&writer, 2)), ("web.a".into(), "web.a".into()));
        // A slice of another Service by now.
        writer.set_slice(&one, Some(slice("db.a", &[1])));
        assert_eq!(owners(&writer, 1), "db.a");
        assert_eq!((writer.index().slices("web.a").count(), writer.index().slices("db.a").count()), (1, 1));
        writer.set_slice(&one, None);
        writer.set_slice(&two, None);
        assert_eq!((owners(&writer, 1), owners(&writer, 2), owners(&writer, 3)), Default::default());
        assert!(writer.index.slices.is_empty() && writer.index.endpoints.is_empty());
        assert_eq!(before.endpoints_at(&[10, 0, 0, 2].into()).len(), 1, "a snapshot does not change");
    }

    #[test]
    fn cluster_ips_follow_services() {
        let mut writer = Writer::default();
        let service = |address: u8| {
            let kind = super::super::ServiceKind::ClusterIp([[10, 96, 0, address].into()].into());
            Some(Service { key: "web.a".into(), kind, ports: Box::default() })
        };
        let at = |writer: &Writer, address: u8| writer.index().services_at(&[10, 96, 0, address].into()).len();
        writer.set_service("a", "web", service(1));
        writer.set_service("a", "web", service(1));
        assert_eq!(at(&writer, 1), 1);
        writer.set_service("a", "web", service(2));
        assert_eq!((at(&writer, 1), at(&writer, 2)), (0, 1));
        writer.set_service("a", "web", None);
        assert_eq!(at(&writer, 2), 0);
        assert!(writer.index().service("web.a").is_none());
    }

    #[test]
    fn pods_share_and_release_addresses() {
        let mut writer = Writer::default();
        let pod = |namespace: &str| {
            let addresses = [IpAddr::from([10, 0, 0, 1])].into();
            Some(Pod { namespace: namespace.into(), addresses, is_cluster_first: true })
        };
        let (one, two): (Arc<str>, Arc<str>) = ("a/one".into(), "b/two".into());
        let count = |writer: &Writer| writer.index().pods_at(&[10, 0, 0, 1].into()).len();
        writer.set_pod(&one, pod("a"));
        writer.set_pod(&one, pod("a"));
        writer.set_pod(&two, pod("b"));
        assert_eq!(count(&writer), 2);
        writer.set_pod(&one, None);
        assert_eq!(count(&writer), 1);
        writer.set_pod(&two, None);
        assert_eq!(count(&writer), 0);
    }
}
