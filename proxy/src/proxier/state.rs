//! The objects from the API: Services and EndpointSlices, indexed by Service, and which Services have changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::ServiceHealth;
use crate::model::{PortName, Service, ServiceKey, Slice, has_left};
use crate::plan::PortEndpoint;

#[derive(Default)]
pub(super) struct State {
    services: HashMap<ServiceKey, Service>,
    /// By Service, then by the key of the slice.
    slices: HashMap<ServiceKey, BTreeMap<ServiceKey, Slice>>,
    /// The Service of each slice, since a label may change.
    services_of_slices: HashMap<ServiceKey, ServiceKey>,
    changed: BTreeSet<ServiceKey>,
    /// Whether one of the changes removes an endpoint from rotation.
    endpoint_left: bool,
    /// Services with a health check port.
    health_checked: BTreeSet<ServiceKey>,
}

impl State {
    pub(super) fn set_service(&mut self, key: &ServiceKey, service: Option<Service>) -> bool {
        if self.services.get(key) == service.as_ref() {
            return false;
        }
        self.health_checked.remove(key);
        match service {
            Some(service) => {
                if service.health_check_node_port.is_some() {
                    self.health_checked.insert(key.clone());
                }
                self.services.insert(key.clone(), service);
            }
            None => drop(self.services.remove(key)),
        }
        self.changed.insert(key.clone());
        true
    }

    pub(super) fn set_slice(&mut self, key: &ServiceKey, slice: Option<Slice>) -> bool {
        let before = self.services_of_slices.get(key).cloned();
        let same = before.as_ref().and_then(|service| self.slices.get(service)?.get(key));
        if same == slice.as_ref() {
            return false;
        }
        self.endpoint_left |= has_left(same, slice.as_ref());
        if let Some(service) = before {
            self.remove_slice(key, &service);
            self.changed.insert(service);
        }
        if let Some(slice) = slice {
            let service = slice.service.clone();
            self.services_of_slices.insert(key.clone(), service.clone());
            self.slices.entry(service.clone()).or_default().insert(key.clone(), slice);
            self.changed.insert(service);
        }
        true
    }

    fn remove_slice(&mut self, key: &ServiceKey, service: &ServiceKey) {
        self.services_of_slices.remove(key);
        if let Some(slices) = self.slices.get_mut(service) {
            slices.remove(key);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The Services that have changed since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<ServiceKey> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Whether an endpoint has left rotation since the last call.
    pub(super) fn take_endpoint_left(&mut self) -> bool {
        std::mem::take(&mut self.endpoint_left)
    }

    pub(super) fn keys(&self) -> Vec<ServiceKey> {
        self.services.keys().cloned().collect()
    }

    pub(super) fn service(&self, key: &ServiceKey) -> Option<&Service> {
        self.services.get(key)
    }

    /// The endpoints of a port. An address may be in two slices while an endpoint moves, or if the address of a
    /// terminating pod is used again: then the endpoint that does not terminate counts.
    pub(super) fn endpoints(&self, port: &PortName) -> Vec<PortEndpoint<'_>> {
        let mut found: BTreeMap<SocketAddr, PortEndpoint<'_>> = BTreeMap::new();
        let slices = self.slices.get(&port.service).into_iter().flat_map(BTreeMap::values);
        for slice in slices.filter(|slice| slice.family == port.family) {
            let same = |own: &&crate::model::SlicePort| own.name == port.port && own.protocol == port.protocol;
            for own in slice.ports.iter().filter(same) {
                for endpoint in &slice.endpoints {
                    let one = PortEndpoint { endpoint, port: own.port };
                    let known = found.entry(one.address()).or_insert(one);
                    if !endpoint.terminating {
                        *known = one;
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// The endpoints of a port that serve, whether or not they get new traffic.
    pub(super) fn serving(&self, port: &PortName) -> HashSet<SocketAddr> {
        self.endpoints(port).iter().filter(|one| one.endpoint.serving).map(PortEndpoint::address).collect()
    }

    pub(super) fn service_health(&self) -> BTreeMap<ServiceKey, ServiceHealth> {
        let health = |key: &ServiceKey| {
            let port = self.services.get(key)?.health_check_node_port?;
            Some((key.clone(), ServiceHealth { port, local_endpoints: self.local_ready(key) }))
        };
        self.health_checked.iter().filter_map(health).collect()
    }

    fn local_ready(&self, key: &ServiceKey) -> usize {
        let slices = self.slices.get(key).into_iter().flat_map(BTreeMap::values);
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        let local = endpoints.filter(|endpoint| endpoint.local && endpoint.ready);
        let addresses: HashSet<IpAddr> = local.map(|endpoint| endpoint.address).collect();
        // A pod of two families is one endpoint.
        let of_ipv4 = addresses.iter().filter(|address| address.is_ipv4()).count();
        of_ipv4.max(addresses.len() - of_ipv4)
    }
}
