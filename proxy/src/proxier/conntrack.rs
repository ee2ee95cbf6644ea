//! Deletes tracked UDP flows that would keep sending to endpoints that were removed, or past a Service that was added.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use network::netlink::{Conntrack, Error, Flow};

use crate::model::{Family, PortName, Protocol};
use crate::plan::PortPlan;

/// The addresses of a UDP port, and where flows to them may lead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frontends {
    family: Family,
    addresses: HashSet<SocketAddr>,
    node_port: Option<u16>,
    serving: HashSet<SocketAddr>,
}

impl Frontends {
    /// None if no flow can be stale. Changes of policies and of readiness leave flows alone, as with TCP.
    pub(super) fn changed(
        name: &PortName,
        old: Option<&PortPlan>,
        new: Option<&PortPlan>,
        serving: HashSet<SocketAddr>,
    ) -> Option<Frontends> {
        if let (Some(old), Some(new)) = (old, new)
            && same_frontends(old, new)
            && old.cluster.iter().chain(&old.local).all(|endpoint| serving.contains(endpoint))
        {
            return None;
        }
        let plans = || [old, new].into_iter().flatten();
        let at = |plan: &PortPlan, address: IpAddr| SocketAddr::new(address, plan.port);
        let addresses = plans()
            .flat_map(|plan| plan.external_ips.iter().chain([&plan.cluster_ip]).map(move |address| at(plan, *address)));
        // Matched by number only: without endpoints, flows of other hosts would be deleted too.
        let node_port = plans().find_map(|plan| plan.node_port).filter(|_| !serving.is_empty());
        Some(Frontends { family: name.family, addresses: addresses.collect(), node_port, serving })
    }

    fn is_stale(&self, flow: &Flow) -> bool {
        let to = SocketAddr::new(flow.destination, flow.port);
        let is_own = self.addresses.contains(&to) || self.node_port == Some(flow.port);
        is_own && !self.serving.contains(&SocketAddr::new(flow.reply_source, flow.reply_port))
    }
}

fn same_frontends(old: &PortPlan, new: &PortPlan) -> bool {
    (old.cluster_ip, old.port, old.node_port) == (new.cluster_ip, new.port, new.node_port)
        && old.external_ips == new.external_ips
}

/// Deletes the stale flows of these ports, and returns their number.
pub(super) fn delete_stale(frontends: &[Frontends]) -> Result<usize, Error> {
    if frontends.is_empty() {
        return Ok(0);
    }
    let mut conntrack = Conntrack::open()?;
    let mut deleted = 0;
    for family in Family::ALL {
        let own: Vec<&Frontends> = frontends.iter().filter(|one| one.family == family).collect();
        if !own.is_empty() {
            let is_udp = |flow: &Flow| flow.protocol == Protocol::Udp.number();
            deleted += conntrack.delete_matching(family == Family::V4, |flow| {
                is_udp(flow) && own.iter().any(|one| one.is_stale(flow))
            })?;
        }
    }
    Ok(deleted)
}
