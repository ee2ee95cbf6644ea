//! Userspace, the original design of the proxy: rules lead every packet to a socket of the proxy, which copies bytes to
//! endpoints, round robin. Endpoints see the node's address, and a stopped proxy interrupts its connections.
//!
//! The rules are those of another backend, for plans whose only endpoint is the proxy's socket.

mod balancer;
mod relay;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use network::netlink::Rtnl;
use tokio::runtime::Runtime;

use super::{Backend, Change, Error, Plans};
use crate::config::Mode;
use crate::model::{Family, PortName, Protocol};
use crate::plan::{NodeRules, PortPlan};
use relay::Relay;

/// Threads that copy bytes.
const THREADS: usize = 2;

/// The backend.
pub struct Userspace {
    rules: Box<dyn Backend>,
    /// None after it was dropped.
    runtime: Option<Runtime>,
    /// The machine's address in each family.
    addresses: BTreeMap<Family, IpAddr>,
    relays: HashMap<(PortName, Policy), Relay>,
    /// The plans that the rules have.
    redirected: Plans,
}

/// Which endpoints a socket forwards to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Policy {
    Cluster,
    Local,
}

impl Userspace {
    /// Redirects by the rules of another backend.
    pub fn new(rules: Box<dyn Backend>) -> Result<Userspace, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("userspace-proxy")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "start threads that copy bytes".to_string(), source })?;
        Ok(Userspace {
            rules,
            runtime: Some(runtime),
            addresses: BTreeMap::new(),
            relays: HashMap::new(),
            redirected: Plans::new(),
        })
    }

    /// A plan whose endpoints are sockets of the proxy.
    fn redirect(&mut self, name: &PortName, plan: &PortPlan) -> Result<PortPlan, Error> {
        let cluster = self.socket(name, Policy::Cluster, &plan.cluster, plan)?;
        let local = self.socket(name, Policy::Local, &plan.local, plan)?;
        // The sockets see the client's address, and keep affinity themselves.
        Ok(PortPlan { cluster, local, affinity: None, hairpin: Vec::new(), ..plan.clone() })
    }

    /// The socket of some endpoints, which is created if there is none yet.
    fn socket(
        &mut self,
        name: &PortName,
        policy: Policy,
        endpoints: &[SocketAddr],
        plan: &PortPlan,
    ) -> Result<Vec<SocketAddr>, Error> {
        if endpoints.is_empty() {
            return Ok(Vec::new());
        }
        let (Some(runtime), Some(address)) = (&self.runtime, self.addresses.get(&name.family)) else {
            tracing::error!(port = %name, "the machine has no address that packets can be redirected to");
            return Ok(Vec::new());
        };
        if plan.protocol == Protocol::Sctp {
            tracing::error!(port = %name, "SCTP is not supported in the proxy mode userspace");
            return Ok(Vec::new());
        }
        let key = (name.clone(), policy);
        if !self.relays.contains_key(&key) {
            let opened = Relay::open(runtime, *address, plan.protocol);
            let failed = |source| Error::Io { what: format!("open a socket for {name} at {address}"), source };
            self.relays.insert(key.clone(), opened.map_err(failed)?);
        }
        let relay = self.relays.get(&key);
        relay.iter().for_each(|relay| relay.set_endpoints(endpoints, plan.affinity));
        Ok(relay.map(|relay| relay.address).into_iter().collect())
    }

    /// Closes sockets that no rule leads to. Open connections go on.
    fn close_unused(&mut self) {
        let redirected = &self.redirected;
        self.relays.retain(|(name, policy), _| {
            redirected.get(name).is_some_and(|plan| match policy {
                Policy::Cluster => !plan.cluster.is_empty(),
                Policy::Local => !plan.local.is_empty(),
            })
        });
    }

    fn set_redirected(&mut self, name: &PortName, plan: Option<PortPlan>) {
        match plan {
            Some(plan) => drop(self.redirected.insert(name.clone(), plan)),
            None => drop(self.redirected.remove(name)),
        }
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        // Unlike a drop of the runtime, this is allowed in a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Backend for Userspace {
    fn mode(&self) -> Mode {
        Mode::Userspace
    }

    fn replace(&mut self, rules: &[NodeRules], plans: &Plans) -> Result<(), Error> {
        let addresses = machine_addresses()?;
        if addresses != self.addresses {
            self.relays.clear();
            self.addresses = addresses;
        }
        let mut redirected = Plans::new();
        for (name, plan) in plans {
            redirected.insert(name.clone(), self.redirect(name, plan)?);
        }
        self.redirected = redirected;
        self.rules.replace(rules, &self.redirected)?;
        self.close_unused();
        Ok(())
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error> {
        let mut changed = Vec::new();
        for change in changes {
            let new = change.new.map(|plan| self.redirect(change.name, plan)).transpose()?;
            changed.push((change.name, self.redirected.get(change.name).cloned(), new));
        }
        let differences: Vec<Change<'_>> = changed
            .iter()
            .filter(|(_, old, new)| old != new)
            .map(|(name, old, new)| Change { name, old: old.as_ref(), new: new.as_ref() })
            .collect();
        if !differences.is_empty() {
            self.rules.apply(&differences)?;
        }
        for (name, _, new) in changed {
            self.set_redirected(name, new);
        }
        self.close_unused();
        Ok(())
    }

    fn is_tampered(&mut self) -> Result<bool, Error> {
        self.rules.is_tampered()
    }

    fn notices(&self) -> Option<OwnedFd> {
        self.rules.notices()
    }

    fn translates_to_endpoints(&self) -> bool {
        false
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        self.relays.clear();
        self.redirected.clear();
        self.rules.cleanup()
    }
}

/// The first address of each family that is neither loopback nor of a link only.
fn machine_addresses() -> Result<BTreeMap<Family, IpAddr>, Error> {
    let mut rtnl = Rtnl::open()?;
    let mut found = BTreeMap::new();
    for link in rtnl.links()? {
        for address in rtnl.addresses(link.index)? {
            let ip = address.net.address;
            if !ip.is_loopback() && !address.link_local {
                found.entry(Family::of(ip)).or_insert(ip);
            }
        }
    }
    Ok(found)
}
