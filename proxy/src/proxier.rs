//! The state of a proxy: what it has read, what is planned, and what is applied. A sync plans only the Services that have
//! changed, and applies the difference.

mod conntrack;
mod state;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use api::Tree;
use network::netlink::Rtnl;

use crate::backend::{Backend, Change, Error, Plans};
use crate::config::{Configuration, Mode};
use crate::model::{Family, NodeInfo, PortName, Protocol, Service, ServiceKey, Slice};
use crate::plan::{NodeRules, PortPlan, Traffic, local_traffic, node_port_addresses, plan_port};
use state::State;

/// The result of a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether everything was replaced.
    pub full: bool,
    /// The number of ports whose plan has changed.
    pub ports: usize,
    /// Tracked connections that were deleted.
    pub connections: usize,
    /// Whether an endpoint that got new traffic before does not get any more.
    pub endpoint_left: bool,
}

/// The health of a Service's local endpoints, for load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHealth {
    /// The port at which it is served.
    pub port: u16,
    /// The number of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A proxy.
pub struct Proxier {
    config: Configuration,
    backend: Box<dyn Backend>,
    families: Vec<Family>,
    state: State,
    node: NodeInfo,
    service_cidrs: Vec<network::cidr::IpNet>,
    /// The applied plans.
    plans: Plans,
    /// Whether the kernel may have other rules than those that were applied.
    needs_replacement: bool,
}

impl Proxier {
    /// A proxy that has not read anything yet. Call it in the network namespace that it serves.
    pub fn new(config: Configuration, backend: Box<dyn Backend>, families: Vec<Family>) -> Proxier {
        let node = NodeInfo { name: config.node_name.as_str().into(), eligible: true, ..NodeInfo::default() };
        Proxier {
            state: State::default(),
            config,
            backend,
            families,
            node,
            service_cidrs: Vec::new(),
            plans: Plans::new(),
            needs_replacement: true,
        }
    }

    /// The mode of the backend.
    pub fn mode(&self) -> Mode {
        self.backend.mode()
    }

    /// The families that are served.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// A descriptor that becomes readable when rules may have been changed by others.
    pub fn notices(&self) -> Option<OwnedFd> {
        self.backend.notices()
    }

    /// A Service was added or changed, or deleted if there is none. Returns whether a sync is needed.
    pub fn set_service(&mut self, key: &ServiceKey, service: Option<&Tree>) -> bool {
        self.put_service(key, service.and_then(Service::read))
    }

    /// The same with a Service that was read already.
    pub fn put_service(&mut self, key: &ServiceKey, service: Option<Service>) -> bool {
        self.state.set_service(key, service)
    }

    /// An EndpointSlice was added or changed, or deleted if there is none. Returns whether a sync is needed.
    pub fn set_slice(&mut self, key: &ServiceKey, slice: Option<&Tree>) -> bool {
        let node = self.config.node_name.clone();
        self.put_slice(key, slice.and_then(|slice| Slice::read(slice, &node)))
    }

    /// The same with a slice that was read already.
    pub fn put_slice(&mut self, key: &ServiceKey, slice: Option<Slice>) -> bool {
        self.state.set_slice(key, slice)
    }

    /// The Node was added or changed. Returns whether a sync is needed.
    pub fn set_node(&mut self, node: &Tree) -> bool {
        let node = NodeInfo { name: self.config.node_name.as_str().into(), ..NodeInfo::read(node) };
        let without_eligibility = |node: &NodeInfo| NodeInfo { eligible: true, ..node.clone() };
        let is_changed = without_eligibility(&self.node) != without_eligibility(&node);
        self.needs_replacement |= is_changed;
        self.node = node;
        is_changed
    }

    /// The ranges of cluster IPs. Returns whether a sync is needed.
    pub fn set_service_cidrs(&mut self, cidrs: Vec<network::cidr::IpNet>) -> bool {
        let is_changed = self.service_cidrs != cidrs;
        self.needs_replacement |= is_changed;
        self.service_cidrs = cidrs;
        is_changed
    }

    /// Whether load balancers may send traffic to the node.
    pub fn is_eligible(&self) -> bool {
        self.node.eligible
    }

    /// Whether something is to be applied.
    pub fn is_pending(&self) -> bool {
        self.needs_replacement || self.state.has_changes()
    }

    /// Checks whether others have changed the rules; the next sync repairs them.
    pub fn check_rules(&mut self) -> Result<bool, Error> {
        let tampered = self.backend.is_tampered()?;
        self.needs_replacement |= tampered;
        Ok(tampered)
    }

    /// Requests that the next sync replaces everything.
    pub fn request_replacement(&mut self) {
        self.needs_replacement = true;
    }

    /// Applies everything that was read since the last sync.
    pub fn sync(&mut self) -> Result<Report, Error> {
        let changes = self.state.take_changes();
        let desired = match self.needs_replacement {
            true => self.plan_services(self.state.keys()),
            false => self.plan_services(changes),
        };
        let full = self.needs_replacement;
        // After a failure nothing is known about the rules.
        self.needs_replacement = true;
        let changed: Vec<(PortName, Option<PortPlan>, Option<PortPlan>)> = self.differences(desired, full);
        if full {
            for (name, _, new) in &changed {
                self.set_plan(name, new.clone());
            }
            self.backend.replace(&self.node_rules(), &self.plans)?;
        } else {
            let list: Vec<Change<'_>> =
                changed.iter().map(|(name, old, new)| Change { name, old: old.as_ref(), new: new.as_ref() }).collect();
            if !list.is_empty() {
                self.backend.apply(&list)?;
            }
            for (name, _, new) in &changed {
                self.set_plan(name, new.clone());
            }
        }
        self.needs_replacement = false;
        let connections = self.delete_connections(&changed);
        let endpoint_left = self.state.take_endpoint_left();
        Ok(Report { full, ports: changed.len(), connections, endpoint_left })
    }

    /// Deletes all rules.
    pub fn cleanup(&mut self) -> Result<(), Error> {
        self.needs_replacement = true;
        self.backend.cleanup()
    }

    /// The Services that need a health check port.
    pub fn service_health(&self) -> BTreeMap<ServiceKey, ServiceHealth> {
        self.state.service_health()
    }

    /// The numbers of Services with internal and with external traffic that is dropped for lack of local endpoints.
    pub fn without_local_endpoints(&self, family: Family) -> (usize, usize) {
        let of_family = || self.plans.iter().filter(|(name, _)| name.family == family).map(|(_, plan)| plan);
        let is_external = |plan: &&PortPlan| plan.node_port.is_some() || !plan.external_ips.is_empty();
        (
            of_family().filter(|plan| plan.internal == Traffic::Drop).count(),
            of_family().filter(is_external).filter(|plan| plan.external == Traffic::Drop).count(),
        )
    }

    /// The applied plans, for tests and diagnostics.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    fn set_plan(&mut self, name: &PortName, plan: Option<PortPlan>) {
        match plan {
            Some(plan) => drop(self.plans.insert(name.clone(), plan)),
            None => drop(self.plans.remove(name)),
        }
    }

    fn plan_services(&self, keys: Vec<ServiceKey>) -> BTreeMap<ServiceKey, Plans> {
        keys.into_iter().map(|key| (key.clone(), self.plan_service(&key))).collect()
    }

    fn plan_service(&self, key: &ServiceKey) -> Plans {
        let Some(service) = self.state.service(key) else { return Plans::new() };
        let served = service.ports.iter().filter(|port| self.families.contains(&port.name.family));
        let plan = |port: &crate::model::ServicePort| {
            let endpoints = self.state.endpoints(&port.name);
            let plan = plan_port(port, &endpoints, &self.node, self.plans.get(&port.name));
            (port.name.clone(), plan)
        };
        served.map(plan).collect()
    }

    /// The ports whose plan differs from the applied one. In a full sync, ports of Services that no longer exist are
    /// among them.
    fn differences(
        &self,
        desired: BTreeMap<ServiceKey, Plans>,
        full: bool,
    ) -> Vec<(PortName, Option<PortPlan>, Option<PortPlan>)> {
        let mut changed = Vec::new();
        // All plans are looked at only in a full sync: an update costs as much as what has changed.
        if full {
            let gone = self.plans.iter().filter(|(name, _)| !desired.contains_key(&name.service));
            changed.extend(gone.map(|(name, plan)| (name.clone(), Some(plan.clone()), None)));
        }
        for (service, mut plans) in desired {
            for (name, old) in self.applied(&service) {
                let new = plans.remove(name);
                if new.as_ref() != Some(old) {
                    changed.push((name.clone(), Some(old.clone()), new));
                }
            }
            changed.extend(plans.into_iter().map(|(name, plan)| (name, None, Some(plan))));
        }
        changed
    }

    fn applied(&self, service: &ServiceKey) -> impl Iterator<Item = (&PortName, &PortPlan)> {
        let first = PortName {
            service: service.clone(),
            port: Default::default(),
            protocol: Protocol::Tcp,
            family: Family::V4,
        };
        let service = service.clone();
        self.plans.range(first..).take_while(move |(name, _)| name.service == service)
    }

    fn node_rules(&self) -> Vec<NodeRules> {
        let configured = self.config.node_port_addresses(self.mode());
        let machine = machine_addresses().unwrap_or_else(|error| {
            tracing::error!(%error, "failed to list the machine's addresses; node ports may not work");
            Vec::new()
        });
        let rules = |family: &Family| NodeRules {
            family: *family,
            local_traffic: local_traffic(&self.config.local_mode, *family, &self.node),
            masquerade_all: self.config.masquerade_all,
            node_ports: node_port_addresses(&configured, *family, &self.node, &machine),
            service_cidrs: self
                .service_cidrs
                .iter()
                .filter(|cidr| Family::of(cidr.address) == *family)
                .copied()
                .collect(),
        };
        self.families.iter().map(rules).collect()
    }

    fn delete_connections(&mut self, changed: &[(PortName, Option<PortPlan>, Option<PortPlan>)]) -> usize {
        if !self.backend.translates_to_endpoints() {
            return 0;
        }
        let udp = changed.iter().filter(|(name, ..)| name.protocol == Protocol::Udp);
        let stale: Vec<conntrack::Frontends> = udp
            .filter_map(|(name, old, new)| {
                let serving = self.state.serving(name);
                conntrack::Frontends::changed(name, old.as_ref(), new.as_ref(), serving)
            })
            .collect();
        conntrack::delete_stale(&stale).unwrap_or_else(|error| {
            tracing::error!(%error, "failed to delete tracked connections of removed UDP endpoints");
            0
        })
    }
}

/// All addresses of the machine.
fn machine_addresses() -> Result<Vec<IpAddr>, network::netlink::Error> {
    let mut rtnl = Rtnl::open()?;
    let mut addresses = Vec::new();
    for link in rtnl.links()? {
        addresses.extend(rtnl.addresses(link.index)?.into_iter().map(|address| address.net.address));
    }
    Ok(addresses)
}
